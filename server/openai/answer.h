// What becomes of the events of one HTTP request: a JSON body at the end, or server-sent events on
// the way. A request with several prompts has several parts, each a GenerateRequest of its own.
// One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/api/request.h"

namespace cuvil::server::openai {

class Answer {
 public:
  virtual ~Answer() = default;

  // Takes what happened to part `part`. A streamed answer appends complete SSE events to *sse; a
  // whole one leaves it alone.
  virtual void Take(int part, Events events, std::string* sse) = 0;

  // The body of a whole answer that is complete.
  virtual std::string Body() = 0;

  // Every part has ended, or the request has failed.
  bool complete() const { return !failure_.ok() || parts_left_ == 0; }
  // Why no whole answer comes. A streamed answer has said so in its last event.
  const absl::Status& failure() const { return failure_; }
  // Fails the request from outside (drain, a slow reader); a stream gets its error event. No effect
  // on a complete answer.
  void Fail(const absl::Status& status, std::string* sse);

  const Usage& usage() const { return usage_; }
  const Timings& timings() const { return timings_; }
  // The worst of all choices, as FinishName spells it; "" before any ended.
  std::string_view finish_reason() const;
  // A rough size of Body(): large ones are written off the I/O thread.
  size_t bytes_held() const { return bytes_held_; }

 protected:
  explicit Answer(int parts) : parts_left_(parts) {}
  // To be called for every Events without failure: adds up usage, notices ends.
  void Account(const Events& events);
  // Fails with the events' status.
  void FailWith(const Events& events, std::string* sse);
  void NoteEnd(FinishReason reason);
  virtual void WriteFailure(const absl::Status& status, std::string* sse) = 0;

  absl::Status failure_;
  size_t bytes_held_ = 0;

 private:
  void AddUsage(const Events& events);

  int parts_left_;
  bool any_ended_ = false;
  FinishReason worst_ = FinishReason::kStop;
  Usage usage_;
  Timings timings_;
};

// Why a choice that ended so is an error; OK for stop and length.
absl::Status FailureOf(FinishReason reason);

}  // namespace cuvil::server::openai
