// Answer: what one accepted request has become: its choices, their tokens and text, and the events
// not yet handed on. Lives on the step thread. The scheduler knows tokens and ends; text, stop
// strings and the choice of a token are here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "scheduler/sequence.h"
#include "server/api/request.h"
#include "text/detokenizer.h"

namespace cuvil::server {

// One candidate's answer so far.
struct Choice {
  scheduler::SequenceId sequence;
  engine::SamplingParams sampling;
  engine::TokenCounts counts;  // prompt and answer; filled when a penalty looks at it
  std::unique_ptr<text::Detokenizer> detokenizer;
  int64_t tokens = 0;         // generated
  double logprob_sum = 0;     // for best_of
  int64_t last_token_us = 0;  // when the newest one was sampled
  bool ended = false;
  bool stopped = false;  // by an end token or a stop string
  std::string stop_matched;
};

class Answer {
 public:
  Answer(uint64_t handle, GenerateRequest request, std::shared_ptr<AnswerSink> sink,
         std::shared_ptr<const text::Tokenizer> tokenizer, int64_t now_us);

  // What the scheduler is to run for choice `k`; `first` is the sequence of choice 0 for k > 0.
  scheduler::Spec SpecOf(int k, scheduler::SequenceId first, int64_t now_us) const;
  bool CountsTokens() const { return counts_tokens_; }

  // Takes a sampled token: text, stop strings, end tokens. True when it ends the choice.
  bool Take(int k, engine::SampledToken token, int64_t now_us);
  // The scheduler's word that the choice is over.
  void End(int k, const scheduler::Ended& ended, int64_t now_us);
  // Of the prompt's token at `position`, in order. They leave together: a prompt may take many
  // steps, and doors write them as one list. What is there already is not added again: a step that
  // failed half way is run anew.
  void AddPromptLogprobs(int64_t position, engine::SampledToken token);
  // Adds the hidden state of the row at `position` to the pool, in order, once.
  void Pool(int64_t position, absl::Span<const float> hidden);

  // Choices all ended; the next Flush is the last.
  bool done() const { return open_ == 0; }
  // Ends what is open: the request as a whole failed before or beside the scheduler.
  void Fail(absl::Status status, int64_t now_us);
  // Hands on what has happened since the last call, if anything.
  void Flush();

  uint64_t handle() const { return handle_; }
  const GenerateRequest& request() const { return request_; }
  std::vector<Choice>& choices() { return choices_; }
  const Usage& usage() const { return usage_; }
  const Timings& timings() const { return timings_; }
  FinishReason first_reason() const { return first_reason_; }

 private:
  void CloseIfDone(int64_t now_us);
  std::vector<int> BestOrder() const;

  const uint64_t handle_;
  GenerateRequest request_;
  std::shared_ptr<AnswerSink> sink_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  const int64_t submitted_us_;
  std::vector<Choice> choices_;
  Events pending_;
  std::vector<engine::SampledToken> prompt_logprobs_;  // until there is one for each token
  int64_t listed_ = 0;                                 // tokens that have been there
  bool dirty_ = false, counts_tokens_ = false;
  int open_ = 0;
  std::vector<double> pooled_;
  int64_t pooled_rows_ = 0;
  absl::Status status_;  // why the whole request failed
  FinishReason first_reason_ = FinishReason::kError;
  Usage usage_;
  Timings timings_;
};

}  // namespace cuvil::server
