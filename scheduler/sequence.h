// What goes into the scheduler and what comes out of it: plain data, no time but microseconds
// given by the caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvcache/trim.h"

namespace cuvil::scheduler {

// Grows with every submission, so ids order by arrival. Never reused.
struct SequenceId {
  int64_t value = -1;
  bool valid() const { return value >= 0; }
  auto operator<=>(const SequenceId&) const = default;
};

// One sequence: one choice of a request.
struct Spec {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_new_tokens = -1;  // -1: the rest of the context; 0: it ends after its prompt
  int priority = 0;             // lower runs first
  std::string tenant;           // fairness is between these
  double weight = 1;            // the tenant's share, > 0
  std::string space;            // prefixes are shared within it only: tenant, salt, adapter
  kvcache::TrimPolicy trim;
  int64_t deadline_us = 0;  // absolute; 0: none
  bool all_rows = false;    // wants every prompt row's output, once: prompt logprobs, pooling
  SequenceId after;         // not before this one's prompt is done (or it has ended), so that
                            // choices of a request share the prompt's pages
};

enum class EndReason : uint8_t {
  kFinished,  // the caller said so: end token, stop string
  kLength,    // max_new_tokens or the context; also a sequence without new tokens
  kAborted,
  kDeadline,
  kError,  // `status` says what
};

struct SequenceStats {
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t cached_tokens = 0;   // of the prompt, found at the first admission
  int64_t trimmed_tokens = 0;  // positions whose keys and values were dropped
  int64_t preemptions = 0, retries = 0;
  // When; 0: never.
  int64_t queued_us = 0, scheduled_us = 0, first_token_us = 0, prompt_done_us = 0;
};

struct Ended {
  SequenceId id;
  EndReason reason = EndReason::kFinished;
  absl::Status status;
  SequenceStats stats;
};

}  // namespace cuvil::scheduler
