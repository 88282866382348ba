// The version that people and clients see.
#pragma once

namespace cuvil::cli {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace cuvil::cli
