// The log probability of a given token under a row of logits, with the likeliest alternatives: what
// a prompt's tokens are reported with. The sampler chooses tokens; this one is told.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "engine/sampling.h"

namespace cuvil::server {

// `alternatives` largest, lowest id first among equals. Any thread; O(vocabulary).
engine::SampledToken LogprobOf(absl::Span<const float> logits, int32_t token, int alternatives);

}  // namespace cuvil::server
