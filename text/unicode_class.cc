#include "text/unicode_class.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace cuvil::text {
namespace {

struct ClassRange {
  uint32_t first;
  CharClass value;
};

constexpr ClassRange kRanges[] = {
#include "text/unicode_class_table.inc"
};

CharClass Search(uint32_t code) {
  const auto* after =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), code,
                       [](uint32_t value, const ClassRange& range) { return value < range.first; });
  return std::prev(after)->value;
}

// Nearly all text lies in the first plane: one byte each makes its lookup a single load.
constexpr uint32_t kDirect = 0x10000;

const std::array<CharClass, kDirect>& DirectTable() {
  static const auto* table = [] {
    auto* filled = new std::array<CharClass, kDirect>;
    for (size_t i = 0; i + 1 < std::size(kRanges) && kRanges[i].first < kDirect; ++i) {
      const uint32_t end = std::min(kRanges[i + 1].first, kDirect);
      std::fill(filled->begin() + kRanges[i].first, filled->begin() + end, kRanges[i].value);
    }
    return filled;
  }();
  return *table;
}

}  // namespace

CharClass ClassOf(uint32_t code) {
  if (code < kDirect) return DirectTable()[code];
  return code <= 0x10FFFF ? Search(code) : CharClass::kOther;
}

}  // namespace cuvil::text
