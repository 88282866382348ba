#include "kvcache/trim.h"

#include <algorithm>

#include "base/checked.h"

namespace cuvil::kvcache {

int64_t TrimPolicy::FirstVisible(int64_t query) const {
  return enabled() ? std::max<int64_t>(0, query - window() + 1) : 0;
}

bool TrimPolicy::PageIsDead(int64_t page, int64_t page_tokens, int64_t from) const {
  return enabled() && page * page_tokens >= sinks && (page + 1) * page_tokens <= FirstVisible(from);
}

int64_t TrimPolicy::PagesMax(int64_t positions, int64_t page_tokens, int64_t rows) const {
  const int64_t all = CeilDiv(positions, page_tokens);
  if (!enabled()) return all;
  // A step feeds [b, b + rows): its first query sees back to b - window + 1, so window - 1 + rows
  // positions lie in at most one page more than their number needs.
  const int64_t live = std::min(window() - 1 + rows, positions);
  return std::min(all, CeilDiv(sinks, page_tokens) + CeilDiv(live, page_tokens) + 1);
}

TrimPolicy TrimPolicy::KeyOfPage(int64_t page, int64_t page_tokens) const {
  return (page + 1) * page_tokens <= max_kv_len ? TrimPolicy{} : *this;
}

absl::Status Validate(const TrimPolicy& policy, int64_t page_tokens) {
  if (policy.max_kv_len < 0 || policy.sinks < 0) {
    return absl::InvalidArgumentError(absl::StrCat("trimming: max_kv_len ", policy.max_kv_len,
                                                   " and sinks ", policy.sinks,
                                                   " must not be negative"));
  }
  if (!policy.enabled()) return absl::OkStatus();
  if (policy.sinks >= policy.max_kv_len) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trimming: sinks ", policy.sinks, " must be less than max_kv_len ", policy.max_kv_len));
  }
  if (policy.window() < page_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("trimming: max_kv_len ", policy.max_kv_len, " less sinks ", policy.sinks,
                     " must be a page (", page_tokens, " tokens) at least"));
  }
  return absl::OkStatus();
}

}  // namespace cuvil::kvcache
