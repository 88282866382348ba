// How a token is chosen from logits. Fields and their order of application: logit bias, repetition
// / presence / frequency penalties over the tokens so far, temperature, top-k, min-p, top-p, draw.
// Random numbers are counter-based on (seed, output index), so batching cannot change a result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cuvil::engine {

struct SamplingParams {
  double temperature = 0.7;  // 0: greedy (lowest id among equals)
  double top_p = 1;          // 0 < p <= 1
  int64_t top_k = 0;         // 0: all
  double min_p = 0;          // 0..1, of the largest probability
  double repetition_penalty = 1;
  double presence_penalty = 0, frequency_penalty = 0;  // -2..2
  std::map<int32_t, double> logit_bias;                // -100..100
  uint64_t seed = 0;
  int logprobs = -1;  // number of alternatives to report, 0..20; -1: none
};

// One sentence naming the field, its value and the range. NaN never passes.
absl::Status CheckSampling(const SamplingParams& params, int64_t vocab_size);

struct SampledToken {
  int32_t id = -1;
  double logprob = 0;  // of the model's distribution after bias and penalties, temperature 1
  std::vector<std::pair<int32_t, double>> top;  // logprobs' alternatives, largest first
};

}  // namespace cuvil::engine
