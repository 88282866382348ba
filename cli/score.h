// Scoring of teacher-forced text: which rows count, and what is computed from a row of logits.
// Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace cuvil::cli {

// One pass over tokens[begin, end) from an empty sequence. Row i (counted from `begin`) predicts
// token i + 1; rows [first_scored, last_scored] count. The last token is never fed.
struct Window {
  int64_t begin = 0, end = 0;
  int64_t first_scored = 0, last_scored = 0;
  int64_t scored() const { return last_scored - first_scored + 1; }
};

// size 0: the whole text as one window of which every prediction counts. Otherwise disjoint windows
// of that many tokens, of which the predictions of tokens size/2 + 1 ... size - 1 count; what
// remains is dropped. InvalidArgument when nothing is left to score or a window exceeds the
// context.
absl::StatusOr<std::vector<Window>> Windows(int64_t tokens, int64_t size, int64_t context);

// log(sum(exp(logits))).
double LogSumExp(absl::Span<const float> logits);

// The K largest logits with their ids, largest first; lower ids first among equals.
std::vector<std::pair<int32_t, float>> TopLogits(absl::Span<const float> logits, int64_t k);

// KL(exact || other) in nats, of the distributions behind two rows of logits.
double Divergence(absl::Span<const float> exact, absl::Span<const float> other);

// The lowest id of the largest logit.
int32_t ArgMax(absl::Span<const float> logits);

}  // namespace cuvil::cli
