// JSON from outside and to outside. Wraps nlohmann_json: parsing refuses nesting deeper than
// kJsonDepthMax, duplicate keys, NaN and trailing text; writing replaces invalid UTF-8 by U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace cuvil {

using Json = nlohmann::ordered_json;

// 64 levels: deeper than any document we read, shallow enough for any stack.
inline constexpr int kJsonDepthMax = 64;

absl::StatusOr<Json> ParseJson(std::string_view text);

// Compact text; indent >= 0 pretty-prints.
std::string WriteJson(const Json& value, int indent = -1);

}  // namespace cuvil
