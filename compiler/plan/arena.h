// Places temporaries in one arena. A temporary lives from the launch that first writes it to the
// last launch that reads it, both inclusive; two that live at the same time never share a byte.
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace cuvil::plan {

struct Interval {
  std::string name;
  int64_t bytes = 0;
  int first = 0, last = 0;  // launch numbers, inclusive
};

// One offset per interval, each a multiple of `align`, and in *total the bytes of the arena.
// Greedy: intervals in order of first use (larger ones first among equals) each take the smallest
// gap between the live ones that holds them, so a plan depends on nothing but its arguments.
// REQUIRES: bytes >= 0, first <= last, align >= 1, and a sum of sizes that fits int64.
std::vector<int64_t> AssignOffsets(absl::Span<const Interval> intervals, int64_t align,
                                   int64_t* total);

// The highest sum of aligned sizes alive at one launch: no plan can be smaller.
int64_t PeakBytes(absl::Span<const Interval> intervals, int64_t align);

}  // namespace cuvil::plan
