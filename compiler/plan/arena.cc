#include "compiler/plan/arena.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/checked.h"
#include "base/status.h"

namespace cuvil::plan {
namespace {

struct Placed {
  int64_t offset, end;
  int last;
};

// The start of the smallest gap of at least `bytes` between placed pieces (sorted by offset), or
// the end of the last one.
int64_t BestGap(const std::vector<Placed>& live, int64_t bytes) {
  int64_t best = -1, best_size = 0, end = 0;
  for (const Placed& piece : live) {
    const int64_t size = piece.offset - end;
    if (size >= bytes && size > 0 && (best < 0 || size < best_size)) {
      best = end;
      best_size = size;
    }
    end = std::max(end, piece.end);
  }
  return best >= 0 ? best : end;
}

}  // namespace

std::vector<int64_t> AssignOffsets(absl::Span<const Interval> intervals, int64_t align,
                                   int64_t* total) {
  CUVIL_CHECK(align >= 1, "alignment of the arena");
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (intervals[a].first != intervals[b].first) return intervals[a].first < intervals[b].first;
    return intervals[a].bytes > intervals[b].bytes;
  });
  std::vector<int64_t> offsets(intervals.size(), 0);
  std::vector<Placed> live;
  *total = 0;
  for (const size_t i : order) {
    const Interval& interval = intervals[i];
    CUVIL_CHECK(interval.bytes >= 0 && interval.first <= interval.last, interval.name);
    std::erase_if(live, [&](const Placed& p) { return p.last < interval.first; });
    const int64_t bytes = AlignUp(interval.bytes, align);
    offsets[i] = BestGap(live, bytes);
    const Placed placed{offsets[i], offsets[i] + bytes, interval.last};
    const auto at =
        std::upper_bound(live.begin(), live.end(), placed,
                         [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    live.insert(at, placed);
    *total = std::max(*total, placed.end);
  }
  return offsets;
}

int64_t PeakBytes(absl::Span<const Interval> intervals, int64_t align) {
  std::map<int, int64_t> change;
  for (const Interval& interval : intervals) {
    change[interval.first] += AlignUp(interval.bytes, align);
    change[interval.last + 1] -= AlignUp(interval.bytes, align);
  }
  int64_t now = 0, peak = 0;
  for (const auto& [launch, delta] : change) peak = std::max(peak, now += delta);
  return peak;
}

}  // namespace cuvil::plan
