// What a backend may trust of every request that a door hands on. For fuzz targets; not part of any
// binary that is shipped.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/sampling.h"
#include "server/api/request.h"

namespace cuvil::server::openai {

// Ends the program when something does not hold. `vocabulary`: tokens of the model.
inline void CheckTrusted(const GenerateRequest& r, int vocabulary) {
  const auto in_range = [vocabulary](int32_t id) { return id >= 0 && id < vocabulary; };
  CUVIL_CHECK(!r.prompt.empty(), "a prompt has tokens");
  for (const int32_t id : r.prompt) CUVIL_CHECK(in_range(id), "prompt token in range");
  for (const int32_t id : r.stop_tokens) CUVIL_CHECK(in_range(id), "stop token in range");
  for (const std::string& stop : r.stop) CUVIL_CHECK(!stop.empty(), "no empty stop");
  CUVIL_CHECK(engine::CheckSampling(r.sampling, vocabulary).ok(), "sampling");
  CUVIL_CHECK(r.choices >= 1 && r.choices <= 128, "choices");
  CUVIL_CHECK(r.max_tokens >= -1, "max_tokens");
  CUVIL_CHECK(r.max_tokens < 0 || r.min_tokens <= r.max_tokens, "min_tokens");
  CUVIL_CHECK(r.best_of == 0 || r.best_of > r.choices, "best_of");
  CUVIL_CHECK(r.prompt_logprobs >= -1 && r.prompt_logprobs <= 20, "prompt_logprobs");
  CUVIL_CHECK(r.priority >= -100 && r.priority <= 100, "priority");
}

}  // namespace cuvil::server::openai
