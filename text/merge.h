// Greedy merging of a sequence of symbols, best pair first, as both BPE kinds do it. The caller
// says what a pair is worth; ties go to the leftmost. n log n in the number of symbols, whatever
// they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace cuvil::text {

// What merging two neighbours gives. The lowest rank is merged first.
struct MergeResult {
  uint32_t rank = 0;
  int32_t symbol = 0;
};

// How much was done, for the tests that hold the cost down.
struct MergeWork {
  uint64_t lookups = 0;  // pairs asked about
  uint64_t pushes = 0;   // queue entries
};

// A reusable workspace; one thread at a time.
class Merger {
 public:
  struct Symbol {
    int32_t id = 0;
    uint32_t begin = 0;  // where its text begins, for lookups that need the text
    uint32_t size = 0;
  };

  std::vector<Symbol>& symbols() { return symbols_; }

  // Merges symbols() in place. `lookup(left, right)` returns std::optional<MergeResult>. Symbols
  // must be fewer than 2^31.
  template <typename Lookup>
  void Merge(const Lookup& lookup, MergeWork* work);

 private:
  struct Entry {
    uint32_t rank;
    uint32_t left;
    // std heaps put the largest on top: the lowest rank, then the leftmost.
    bool operator<(const Entry& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  struct Pair {  // of a symbol and its right neighbour
    uint32_t rank = kNone;
    int32_t merged = 0;
  };
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kEnd = kNone;

  template <typename Lookup>
  void Price(uint32_t left, const Lookup& lookup, MergeWork* work);
  void Link();
  void Compact();

  std::vector<Symbol> symbols_;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> previous_, next_;
  std::vector<Entry> heap_;
};

template <typename Lookup>
void Merger::Price(uint32_t left, const Lookup& lookup, MergeWork* work) {
  pairs_[left].rank = kNone;
  if (next_[left] == kEnd) return;
  ++work->lookups;
  const std::optional<MergeResult> found = lookup(symbols_[left], symbols_[next_[left]]);
  if (!found) return;
  pairs_[left] = {found->rank, found->symbol};
  ++work->pushes;
  heap_.push_back({found->rank, left});
}

inline void Merger::Link() {
  const uint32_t count = static_cast<uint32_t>(symbols_.size());
  pairs_.assign(count, {});
  previous_.resize(count);
  next_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    previous_[i] = i == 0 ? kEnd : i - 1;
    next_[i] = i + 1 == count ? kEnd : i + 1;
  }
  heap_.clear();
}

inline void Merger::Compact() {
  uint32_t out = 0;
  for (uint32_t i = 0; i != kEnd; i = next_[i]) symbols_[out++] = symbols_[i];
  symbols_.resize(out);
}

template <typename Lookup>
void Merger::Merge(const Lookup& lookup, MergeWork* work) {
  if (symbols_.size() < 2) return;
  Link();
  for (uint32_t i = 0; i + 1 < symbols_.size(); ++i) Price(i, lookup, work);
  std::make_heap(heap_.begin(), heap_.end());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry best = heap_.back();
    heap_.pop_back();
    // An entry whose pair has changed since is stale. A symbol that was merged away has no pair.
    if (pairs_[best.left].rank != best.rank) continue;
    const uint32_t left = best.left;
    const uint32_t right = next_[left];
    symbols_[left].id = pairs_[left].merged;
    symbols_[left].size += symbols_[right].size;
    pairs_[right].rank = kNone;
    next_[left] = next_[right];
    if (next_[left] != kEnd) previous_[next_[left]] = left;
    for (const uint32_t changed : {previous_[left], left}) {
      if (changed == kEnd) continue;
      const size_t before = heap_.size();
      Price(changed, lookup, work);
      if (heap_.size() != before) std::push_heap(heap_.begin(), heap_.end());
    }
  }
  Compact();
}

}  // namespace cuvil::text
