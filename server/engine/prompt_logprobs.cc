#include "server/engine/prompt_logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace cuvil::server {

engine::SampledToken LogprobOf(absl::Span<const float> logits, int32_t token, int alternatives) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  const double log_sum = max + std::log(sum);
  engine::SampledToken out{.id = token, .logprob = logits[token] - log_sum};
  const size_t keep = std::min<size_t>(std::max(alternatives, 0), logits.size());
  if (keep == 0) return out;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + keep, ids.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (size_t i = 0; i < keep; ++i) out.top.emplace_back(ids[i], logits[ids[i]] - log_sum);
  return out;
}

}  // namespace cuvil::server
