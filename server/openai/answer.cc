#include "server/openai/answer.h"

namespace cuvil::server::openai {

absl::Status FailureOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      return absl::OkStatus();
    case FinishReason::kAborted:
      return absl::CancelledError("the request was cancelled");
    case FinishReason::kDeadline:
      return absl::DeadlineExceededError("the request's time was over before it was finished");
    case FinishReason::kError:
      break;
  }
  return absl::InternalError("");
}

void Answer::NoteEnd(FinishReason reason) {
  any_ended_ = true;
  if (reason > worst_) worst_ = reason;
}

void Answer::AddUsage(const Events& events) {
  usage_.prompt_tokens += events.usage.prompt_tokens;
  usage_.cached_tokens += events.usage.cached_tokens;
  usage_.completion_tokens += events.usage.completion_tokens;
  usage_.trimmed_tokens += events.usage.trimmed_tokens;
  usage_.preemptions += events.usage.preemptions;
  timings_ = events.timings;
}

void Answer::Account(const Events& events) {
  for (const ChoiceEnd& end : events.ended) NoteEnd(end.reason);
  if (!events.done) return;
  --parts_left_;
  AddUsage(events);
}

void Answer::FailWith(const Events& events, std::string* sse) {
  if (events.done) AddUsage(events);
  Fail(events.status, sse);
}

void Answer::Fail(const absl::Status& status, std::string* sse) {
  if (complete()) return;
  failure_ = status;
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      NoteEnd(FinishReason::kAborted);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      NoteEnd(FinishReason::kDeadline);
      break;
    default:
      NoteEnd(FinishReason::kError);
  }
  WriteFailure(status, sse);
}

std::string_view Answer::finish_reason() const { return any_ended_ ? FinishName(worst_) : ""; }

}  // namespace cuvil::server::openai
