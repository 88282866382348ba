#include "kvcache/page_pool.h"

namespace cuvil::kvcache {

PagePool::PagePool(int64_t pages) : refs_(pages, kFree), free_(pages) {
  for (int64_t i = 0; i < pages; ++i) free_[i] = static_cast<int32_t>(pages - 1 - i);
}

int32_t PagePool::Take() {
  CUVIL_CHECK(!free_.empty(), "no free page: availability is checked before");
  const int32_t page = free_.back();
  free_.pop_back();
  refs_[page] = 1;
  ++owned_;
  return page;
}

void PagePool::Ref(int32_t page) {
  CUVIL_CHECK(refs_[page] != kFree, "a free page has no contents to share");
  if (refs_[page]++ == 0) {
    --cached_;
    ++owned_;
  }
}

bool PagePool::Unref(int32_t page, bool keep_cached) {
  CUVIL_CHECK(refs_[page] > 0, "page given back twice");
  if (--refs_[page] > 0) return false;
  --owned_;
  ++cached_;
  if (!keep_cached) Drop(page);
  return true;
}

void PagePool::Drop(int32_t page) {
  CUVIL_CHECK(refs_[page] == 0, "only a cached page is dropped");
  refs_[page] = kFree;
  --cached_;
  free_.push_back(page);
}

absl::Status PagePool::Check() const {
  int64_t owned = 0, cached = 0;
  for (const int32_t refs : refs_) {
    owned += refs > 0;
    cached += refs == 0;
  }
  if (owned != owned_ || cached != cached_ || owned + cached + free() != total()) {
    return absl::InternalError(absl::StrCat("pages: counted owned ", owned, " cached ", cached,
                                            ", kept owned ", owned_, " cached ", cached_, " free ",
                                            free(), " of ", total()));
  }
  std::vector<bool> seen(refs_.size());
  for (const int32_t page : free_) {
    if (refs_[page] != kFree || seen[page]) {
      return absl::InternalError(absl::StrCat("page ", page, " is wrongly on the free list"));
    }
    seen[page] = true;
  }
  return absl::OkStatus();
}

}  // namespace cuvil::kvcache
