// Numbers and strings of the text form, spelled so that reading them back gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/ir/graph.h"

namespace cuvil::ir {

// Shortest spelling that reads back equal, always with '.', 'e', "inf" or "nan" in it.
std::string FloatText(double value);
// In double quotes; control characters, quotes and backslashes escaped.
std::string QuotedText(std::string_view value);
// `[1, 2.5]`, or `x"..."` when a float constant holds a NaN, whose bits numbers do not carry.
std::string PayloadText(const TensorType& type, const std::vector<uint8_t>& bytes);

}  // namespace cuvil::ir
