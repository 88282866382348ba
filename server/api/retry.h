// When a caller that was refused may try again: a payload of ResourceExhausted and Unavailable,
// which doors send in their own way.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace cuvil::server {

// The same error with the advice, rounded up to seconds, 1 .. 60: clients ignore longer ones.
absl::Status WithRetryAfter(absl::Status status, int64_t wait_us);
// 0: the error says nothing.
int RetryAfterS(const absl::Status& status);

}  // namespace cuvil::server
