// QueueLimits: what may wait. A sequence that finds a place does not wait, however large it is; the
// others must fit the limits together. One rule for the scheduler and for who takes requests for it
// on another thread, so that what was accepted is never refused later.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace cuvil::scheduler {

struct QueueLimits {
  int64_t places = 0;     // sequences that run at once
  int64_t sequences = 0;  // that may wait besides
  int64_t tokens = 0;     // of prompts that may wait
};

// What is there already.
struct QueueState {
  int64_t present = 0;         // sequences, running and waiting
  int64_t waiting_tokens = 0;  // of prompts that never ran
};

// Whether `sequences` more with `prompt_tokens` together are accepted. ResourceExhausted says what
// waits, and the limit by its option's name. There is no size that an idle engine refuses, as long
// as the sequences do not outnumber the places.
absl::Status CheckQueue(const QueueLimits& limits, const QueueState& state, int64_t sequences,
                        int64_t prompt_tokens);

}  // namespace cuvil::scheduler
