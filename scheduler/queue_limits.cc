#include "scheduler/queue_limits.h"

#include <algorithm>

namespace cuvil::scheduler {

absl::Status CheckQueue(const QueueLimits& limits, const QueueState& state, int64_t sequences,
                        int64_t prompt_tokens) {
  const int64_t beyond = state.present + sequences - limits.places;
  if (beyond <= 0) return absl::OkStatus();
  if (beyond > limits.sequences) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the queue is full: ", std::max<int64_t>(0, state.present - limits.places),
        " sequences wait for a place, and ", sequences, " more exceed queue_requests, which is ",
        limits.sequences, "; try again later"));
  }
  if (prompt_tokens > limits.tokens) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request has ", prompt_tokens, " prompt tokens and queue_tokens is ",
                     limits.tokens, ": it cannot wait, only start when ", sequences,
                     " places are free; try again later, or raise queue_tokens"));
  }
  if (prompt_tokens > limits.tokens - state.waiting_tokens) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the queue is full: ", state.waiting_tokens, " prompt tokens wait, and ", prompt_tokens,
        " more exceed queue_tokens, which is ", limits.tokens, "; try again later"));
  }
  return absl::OkStatus();
}

}  // namespace cuvil::scheduler
