// ToyModel: a deterministic "language model" whose every value depends on all values it sees, read
// through page tables from a fake device memory. A page mixed up, stale, shared too early or
// trimmed too early changes the tokens that follow.
//
//   value(i) = mix(token(i), i, space, sum over visible j < i of mix(value(j), j))
//   next token = value(i) % V
//
// The space (a namespace of the prefix cache: an adapter, a tenant's salt) is part of the values,
// so that a page shared across spaces shows as well.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "kvcache/trim.h"
#include "tests/sim/rng.h"

namespace cuvil::sim {

inline constexpr int kVocabulary = 40;
inline constexpr int32_t kEndToken = 0;

// Written anew instead of asking TrimPolicy, which is under test.
inline bool Visible(const kvcache::TrimPolicy& trim, int64_t query, int64_t key) {
  if (trim.max_kv_len == 0) return true;
  return key < trim.sinks || key > query - (trim.max_kv_len - trim.sinks);
}

// The run of one request alone: what every other run must equal.
struct Reference {
  std::vector<int32_t> tokens;   // prompt and new ones, up to an end token or `tokens_max`
  std::vector<uint64_t> values;  // one per position fed
};
Reference RunAlone(const std::vector<int32_t>& prompt, uint64_t space,
                   const kvcache::TrimPolicy& trim, int64_t tokens_max);

inline int32_t NextToken(uint64_t value) { return static_cast<int32_t>(value % kVocabulary); }

class ToyDevice {
 public:
  ToyDevice(int64_t pages, int page_tokens, uint64_t seed);

  // Feeds tokens at positions begin.. of one sequence; a value per row. Internal when a visible
  // position lies in a hole or outside the table.
  absl::StatusOr<std::vector<uint64_t>> Run(const std::vector<int32_t>& table, uint64_t space,
                                            const kvcache::TrimPolicy& trim, int64_t begin,
                                            absl::Span<const int32_t> tokens);
  // Ruins the pages of positions [begin, end): what a failed step leaves behind.
  void Scribble(const std::vector<int32_t>& table, int64_t begin, int64_t end);

 private:
  int page_tokens_;
  std::vector<uint64_t> cells_;
  Rng rng_;
};

}  // namespace cuvil::sim
