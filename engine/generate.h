// Generation: a prompt becomes a stream of tokens and text. A call has one sequence of the engine
// for its life and frees it however it ends. Runs on the engine's owner thread, one call at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/sampling.h"
#include "text/detokenizer.h"

namespace cuvil::engine {

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };
std::string_view FinishName(FinishReason reason);  // "stop", "length", "cancelled"

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 512;     // clamped to the rest of the context
  SamplingParams sampling;
  std::vector<std::string> stop;  // stop strings; never part of the text
  bool ignore_eos = false;
};

struct Result {
  std::vector<int32_t> tokens;  // including the end token
  std::string text;
  FinishReason finish = FinishReason::kStop;
  std::vector<SampledToken> logprobs;  // one per token when asked
  double prefill_s = 0, decode_s = 0;
  double first_token_at_s = 0;  // steady-clock time of the first token
};

// Runs to the end. `on_text` gets whole UTF-8 characters as they become certain; returning false,
// or *cancel becoming true between steps, ends the answer as kCancelled with what there is.
// InvalidArgument for an empty prompt, one beyond the context, or sampling parameters out of range;
// ResourceExhausted without a free sequence or page.
absl::StatusOr<Result> Generate(
    Engine& engine, Sampler& sampler, const Request& request,
    const std::function<bool(const std::string& text)>& on_text = nullptr,
    const std::atomic<bool>* cancel = nullptr);

}  // namespace cuvil::engine
