// TrimPolicy: which keys a query sees when a sequence keeps at most max_kv_len of them. A pure
// function of the query's position: neither chunking nor batching can change it.
//
//   position   0 .. sinks-1 | ...hole... | i-window+1 .. i        (query at i)
//              always seen  | unseen     | the newest positions
//
// Keys stay at their absolute positions. A query below max_kv_len sees everything before it, so
// pages that end at or below max_kv_len hold the same values under every policy.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace cuvil::kvcache {

struct TrimPolicy {
  int64_t max_kv_len = 0;  // positions a query sees at most; 0: all of them
  int64_t sinks = 0;       // first positions, always seen

  bool operator==(const TrimPolicy&) const = default;
  bool enabled() const { return max_kv_len > 0; }
  int64_t window() const { return max_kv_len - sinks; }

  // REQUIRES: 0 <= key <= query.
  bool Sees(int64_t query, int64_t key) const {
    return !enabled() || key < sinks || key > query - window();
  }
  // First position outside the sinks that queries at `query` and later can see.
  int64_t FirstVisible(int64_t query) const;
  // No query at position `from` or later sees any position of page `page`.
  bool PageIsDead(int64_t page, int64_t page_tokens, int64_t from) const;
  // Most pages that a sequence holds at once while it grows to `positions`, at most `rows` per
  // step.
  int64_t PagesMax(int64_t positions, int64_t page_tokens, int64_t rows) const;
  // What the key of a page must hold besides its tokens: nothing for a page whose values do not
  // depend on the policy.
  TrimPolicy KeyOfPage(int64_t page, int64_t page_tokens) const;
};

// InvalidArgument unless 0 <= sinks < max_kv_len and the window holds a page at least.
absl::Status Validate(const TrimPolicy& policy, int64_t page_tokens);

}  // namespace cuvil::kvcache
