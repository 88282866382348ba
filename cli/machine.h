// The machine's limits (base/machine.h) as the commands print them.
#pragma once

#include "base/json.h"
#include "base/machine.h"

namespace cuvil::cli {

// {"cores", "memory_bytes", "memory_available_bytes", "memory_limit_bytes", "huge_pages",
// "amx_note"}
Json LimitsJson(const MachineLimits& limits);

}  // namespace cuvil::cli
