// Checks of a Program that came from outside (a cache, a file): afterwards every index is in range
// and every offset stays inside its region, so the runtime needs no further checks. Pure functions.
#pragma once

#include "base/status.h"
#include "runtime/program.h"

namespace cuvil::runtime {

// The weights alone: sizes match layouts and rows, places are aligned and inside the region.
absl::Status ValidateWeights(const Program& program);

}  // namespace cuvil::runtime
