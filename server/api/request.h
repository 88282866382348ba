// What a door (HTTP, gRPC) asks of the engine and what it gets back: plain data, after all
// validation that needs no engine. Both doors fill the same structs, so that they cannot differ in
// meaning.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/sampling.h"

namespace cuvil::server {

enum class Task : uint8_t { kGenerate, kEmbed };

// Keys and values a sequence keeps. 0: all. Else a query at position i sees [0, sinks) and the
// max_kv_len - sinks newest positions up to i.
struct TrimOptions {
  int64_t max_kv_len = 0;
  int64_t sinks = 4;
};

struct GenerateRequest {
  std::string id;     // shown in logs and answers; unique by the door's choice, not required to be
  std::string model;  // served name
  Task task = Task::kGenerate;
  std::vector<int32_t> prompt;  // at least one token, all inside the vocabulary

  // Generation.
  int64_t max_tokens = -1;  // per choice; -1: the rest of the context; 0: only the prompt is run
  int64_t min_tokens = 0;   // end tokens and stop strings do not count before
  engine::SamplingParams sampling;  // choice k draws with a seed derived from (seed, k)
  int choices = 1;                  // n
  int best_of = 0;                // candidates of which the `choices` best are returned; 0: choices
  std::vector<std::string> stop;  // never part of the text
  std::vector<int32_t> stop_tokens;
  bool include_stop = false;  // the matched stop string stays in the text
  bool ignore_eos = false;
  int prompt_logprobs = -1;         // alternatives reported for each prompt token; -1: none
  std::optional<TrimOptions> trim;  // nothing: the model's own setting

  // Scheduling.
  int priority = 0;         // lower runs first, as in vLLM; -100..100
  std::string tenant;       // fairness and prefix cache are kept apart by it
  std::string cache_salt;   // further separation of the prefix cache
  int64_t deadline_ms = 0;  // from Submit to the last token; 0: the server's own limit
};

enum class FinishReason : uint8_t { kStop, kLength, kAborted, kDeadline, kError };

struct TokenEvent {
  int choice = 0;
  engine::SampledToken token;  // logprob and top are filled when asked for
  std::string text;            // what this token makes certain: whole UTF-8, may be empty
};

struct ChoiceEnd {
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  std::string text;          // held back until now
  std::string stop_matched;  // the stop string that ended it, if one did
};

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t completion_tokens = 0;  // of all candidates
  int64_t trimmed_tokens = 0;     // positions whose keys and values were dropped
  int64_t preemptions = 0;
};

// Seconds from Submit. For logs, histograms and the `timings` extension.
struct Timings {
  double queue_s = 0, first_token_s = 0, prefill_s = 0, total_s = 0;
};

// One call per request and step: what has happened since the last.
struct Events {
  // Once, before the first token, when asked: entry i is for prompt[i]; the first has no value.
  std::vector<engine::SampledToken> prompt_logprobs;
  std::vector<TokenEvent> tokens;  // of one choice in order; choices interleave
  std::vector<ChoiceEnd> ended;
  std::vector<float> embedding;  // Task::kEmbed: the pooled hidden state, not normalised
  // The last call, exactly once per accepted request. `status` is OK unless the whole request
  // failed (device error, deadline in the queue, shutdown); choices that had not ended then have
  // no ChoiceEnd.
  bool done = false;
  absl::Status status;
  Usage usage;
  Timings timings;
  std::vector<int> best;  // with best_of: candidates to return, best first
};

// Receives the events of one request, on the model's step thread: hand them on, do not work here.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void OnEvents(Events events) = 0;
};

std::string_view FinishName(FinishReason reason);  // "stop" "length" "abort" "deadline" "error"

}  // namespace cuvil::server
