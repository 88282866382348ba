#include "tests/sim/toy_model.h"

namespace cuvil::sim {
namespace {

uint64_t Value(int32_t token, int64_t position, uint64_t space, uint64_t seen) {
  return Mix(seen ^
             Mix(space + (static_cast<uint64_t>(token) << 32) + static_cast<uint64_t>(position)));
}

uint64_t Seen(uint64_t value, int64_t position) {
  return Mix(value + static_cast<uint64_t>(position) * 0x2545f4914f6cdd1d);
}

}  // namespace

Reference RunAlone(const std::vector<int32_t>& prompt, uint64_t space,
                   const kvcache::TrimPolicy& trim, int64_t tokens_max) {
  Reference run = {.tokens = prompt};
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    uint64_t seen = 0;
    for (size_t j = 0; j < i; ++j) {
      if (Visible(trim, static_cast<int64_t>(i), static_cast<int64_t>(j))) {
        seen += Seen(run.values[j], static_cast<int64_t>(j));
      }
    }
    run.values.push_back(Value(run.tokens[i], static_cast<int64_t>(i), space, seen));
    const bool last = i + 1 == run.tokens.size();
    if (!last || static_cast<int64_t>(run.tokens.size()) >= tokens_max) continue;
    const int32_t token = NextToken(run.values[i]);
    run.tokens.push_back(token);
    if (token == kEndToken || static_cast<int64_t>(run.tokens.size()) >= tokens_max) break;
  }
  return run;
}

ToyDevice::ToyDevice(int64_t pages, int page_tokens, uint64_t seed)
    : page_tokens_(page_tokens), cells_(pages * page_tokens), rng_(seed) {
  for (uint64_t& cell : cells_) cell = rng_.Next();
}

absl::StatusOr<std::vector<uint64_t>> ToyDevice::Run(const std::vector<int32_t>& table,
                                                     uint64_t space,
                                                     const kvcache::TrimPolicy& trim, int64_t begin,
                                                     absl::Span<const int32_t> tokens) {
  std::vector<uint64_t> values;
  for (size_t r = 0; r < tokens.size(); ++r) {
    const int64_t i = begin + static_cast<int64_t>(r);
    uint64_t seen = 0;
    for (int64_t j = 0; j <= i; ++j) {
      if (!Visible(trim, i, j)) continue;
      const int64_t k = j / page_tokens_;
      if (k >= static_cast<int64_t>(table.size()) || table[k] < 0) {
        return absl::InternalError(
            absl::StrCat("query ", i, " sees position ", j, ", whose page is missing"));
      }
      uint64_t& cell = cells_[table[k] * page_tokens_ + j % page_tokens_];
      if (j < i) {
        seen += Seen(cell, j);
      } else {
        values.push_back(cell = Value(tokens[r], i, space, seen));
      }
    }
  }
  return values;
}

void ToyDevice::Scribble(const std::vector<int32_t>& table, int64_t begin, int64_t end) {
  for (int64_t k = begin / page_tokens_; k * page_tokens_ < end; ++k) {
    for (int c = 0; c < page_tokens_; ++c) cells_[table[k] * page_tokens_ + c] = rng_.Next();
  }
}

}  // namespace cuvil::sim
