// ModelHost: what is refused at the door, and why.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/engine.h"
#include "scheduler/queue_limits.h"
#include "server/api/param.h"
#include "server/api/retry.h"
#include "server/engine/model_host.h"

namespace cuvil::server {

absl::Status ModelHost::Validate(const GenerateRequest& r) const {
  const int64_t context = model_->config().context_length;
  const int64_t size = static_cast<int64_t>(r.prompt.size());
  if (size == 0) return absl::InvalidArgumentError("the prompt has no tokens; give at least one");
  // A prompt that fills the context leaves no room for an answer.
  const bool answers = r.task != Task::kEmbed && r.max_tokens != 0;
  const int64_t room = answers ? context - 1 : context;
  if (size > room) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", size, " tokens and at most ",
                                                   room, " fit the context of ", context,
                                                   "; shorten it"));
  }
  const int32_t vocab = static_cast<int32_t>(model_->config().vocab_size);
  auto known = [&](int32_t token) { return token >= 0 && token < vocab; };
  for (const auto& [tokens, field] :
       {std::pair(&r.prompt, "prompt"), std::pair(&r.stop_tokens, "stop_token_ids")}) {
    const auto bad = std::find_if_not(tokens->begin(), tokens->end(), known);
    if (bad != tokens->end()) {
      return WithParam(field, absl::InvalidArgumentError(absl::StrCat(
                                  "token ", *bad, " is outside the vocabulary of ", vocab)));
    }
  }
  const int64_t limit = r.max_tokens < 0 ? context - size : r.max_tokens;
  if (r.task == Task::kGenerate && r.min_tokens > limit) {
    return WithParam("min_tokens", absl::InvalidArgumentError(
                                       absl::StrCat("min_tokens is ", r.min_tokens,
                                                    ", above the limit of ", limit, " tokens")));
  }
  if (r.choices < 1 || r.choices > options_.sequences_max || r.best_of < 0 ||
      r.best_of > options_.sequences_max) {
    const char* field = r.best_of <= r.choices ? "n" : "best_of";
    return WithParam(field, absl::InvalidArgumentError(absl::StrCat(
                                field, " is ", std::max(r.choices, r.best_of), "; at most ",
                                options_.sequences_max, " sequences run at once here")));
  }
  if (r.trim && r.trim->max_kv_len > 0) {
    RETURN_IF_ERROR(
        WithParam("max_kv_len", engine::CheckTrim({r.trim->max_kv_len, r.trim->sinks}, *model_)));
  }
  return engine::CheckSampling(r.sampling, vocab);
}

// Whether the queue takes it, and leads it to an end before its deadline. What would be late is not
// let in: it would take its time from those that are not. Nor does anything wait for more than half
// its deadline, or short answers would fill the queue up to where no long one can ever start.
// REQUIRES: mutex_ is held.
absl::Status ModelHost::CheckRoomLocked(const Ask& ask) const {
  if (draining_ || stop_) {
    return absl::UnavailableError("the server takes no new requests: it is stopping; try another");
  }
  const int64_t waiting = load_.waiting + inbox_sequences_;
  const int64_t present = load_.running + waiting;
  const bool waits = present >= options_.sequences_max;
  const int64_t wait_us = waits ? service_time_.WaitUs(waiting_rows_ + inbox_rows_) : 0;
  const absl::Status room =
      scheduler::CheckQueue({.places = options_.sequences_max,
                             .sequences = options_.queue_requests_max,
                             .tokens = options_.queue_tokens_max},
                            {.present = present, .waiting_tokens = waiting_tokens_ + inbox_tokens_},
                            ask.sequences, ask.sequences * ask.prompt_tokens);
  // Half a queue later there is room for all who are told so now.
  if (!room.ok()) return WithRetryAfter(room, wait_us / 2);
  const int64_t deadline_us = DeadlineMs(ask.deadline_ms) * 1000;
  const int64_t needs_us = wait_us + std::max(wait_us, service_time_.StayUs(ask.max_tokens));
  if (wait_us > 0 && deadline_us > 0 && needs_us > deadline_us) {
    absl::Status late = absl::ResourceExhaustedError(absl::StrFormat(
        "the queue is too long for this request's deadline of %.1f s: %d sequences wait, and it "
        "would start in %.1f s; try again later",
        static_cast<double>(deadline_us) * 1e-6, waiting, static_cast<double>(wait_us) * 1e-6));
    return WithRetryAfter(std::move(late), needs_us - deadline_us);
  }
  return absl::OkStatus();
}

absl::Status ModelHost::CheckRoom(int64_t deadline_ms) const {
  std::lock_guard lock(mutex_);
  return CheckRoomLocked(
      {.sequences = 1, .prompt_tokens = 1, .max_tokens = 1, .deadline_ms = deadline_ms});
}

// The request's own, or the limit of all.
int64_t ModelHost::DeadlineMs(int64_t asked) const {
  const int64_t most = options_.deadline_ms_max;
  return most > 0 && (asked == 0 || asked > most) ? most : asked;
}

}  // namespace cuvil::server
