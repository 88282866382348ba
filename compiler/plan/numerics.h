// The numeric classes a step may be compiled in.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace cuvil::plan {

// exact: f32 activations and keys/values. fast: 8-bit activations with a scale per 32 for weights
// in a block layout (q4_0, q4_1, q8_0), else f32; f16 keys/values. deterministic: fast restricted
// to kernels whose rows do not depend on their neighbours, which here all of them are, so it shares
// fast's program.
enum class Numerics : uint8_t { kExact, kFast, kDeterministic };
absl::StatusOr<Numerics> ParseNumerics(std::string_view name);
std::string_view NumericsName(Numerics n);

}  // namespace cuvil::plan
