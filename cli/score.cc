#include "cli/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace cuvil::cli {

absl::StatusOr<std::vector<Window>> Windows(int64_t tokens, int64_t size, int64_t context) {
  std::vector<Window> windows;
  if (size == 0) {
    if (tokens < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text has ", tokens, " tokens; predictions need at least 2"));
    }
    // The last token is predicted, not fed: it needs no place.
    if (tokens - 1 > context) {
      return absl::InvalidArgumentError(absl::StrCat("the text has ", tokens,
                                                     " tokens and the context holds ", context,
                                                     "; pass --window N to score it in pieces"));
    }
    return std::vector<Window>{{0, tokens, 0, tokens - 2}};
  }
  if (size < 3 || size > context) {
    return absl::InvalidArgumentError(
        absl::StrCat("--window is ", size, "; it must be 3 to ", context, ", the model's context"));
  }
  for (int64_t begin = 0; begin + size <= tokens; begin += size) {
    windows.push_back({begin, begin + size, size / 2, size - 2});
  }
  if (windows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the text has ", tokens,
                                                   " tokens, fewer than one window of ", size,
                                                   "; pass a smaller --window"));
  }
  return windows;
}

double LogSumExp(absl::Span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

std::vector<std::pair<int32_t, float>> TopLogits(absl::Span<const float> logits, int64_t k) {
  const size_t count = std::min<size_t>(static_cast<size_t>(k), logits.size());
  if (count == 0) return {};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<std::pair<int32_t, float>> top;
  for (size_t i = 0; i < count; ++i) top.emplace_back(ids[i], logits[ids[i]]);
  return top;
}

double Divergence(absl::Span<const float> exact, absl::Span<const float> other) {
  const double exact_lse = LogSumExp(exact), other_lse = LogSumExp(other);
  double sum = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double p = exact[i] - exact_lse, q = other[i] - other_lse;
    sum += std::exp(p) * (p - q);
  }
  return std::max(sum, 0.0);  // never negative but for rounding
}

int32_t ArgMax(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace cuvil::cli
