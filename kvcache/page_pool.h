// PagePool: the state of every page of a model's KV memory; holds no tensor memory itself.
//
//   free --Take--> owned (count 1..) --Unref--> cached or free;  cached --Ref--> owned;
//   cached --Drop--> free
//
// Owner: the step thread. Invariant: owned + cached + free == total.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace cuvil::kvcache {

class PagePool {
 public:
  explicit PagePool(int64_t pages);

  // A free page, now owned once; the lowest-numbered first at the start, then last freed first.
  // REQUIRES: free() > 0.
  int32_t Take();
  // One more owner. REQUIRES: owned or cached.
  void Ref(int32_t page);
  // One owner less; the last one leaves the page cached or free. True if it was the last.
  bool Unref(int32_t page, bool keep_cached);
  // REQUIRES: cached.
  void Drop(int32_t page);

  int32_t refs(int32_t page) const { return refs_[page]; }
  bool is_free(int32_t page) const { return refs_[page] == kFree; }
  bool is_cached(int32_t page) const { return refs_[page] == 0; }
  int64_t total() const { return static_cast<int64_t>(refs_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached() const { return cached_; }
  int64_t owned() const { return owned_; }

  // Internal with a sentence when counts, states and the free list disagree.
  absl::Status Check() const;

 private:
  static constexpr int32_t kFree = -1;

  std::vector<int32_t> refs_;  // kFree, 0 for cached, else owners
  std::vector<int32_t> free_;
  int64_t cached_ = 0, owned_ = 0;
};

}  // namespace cuvil::kvcache
