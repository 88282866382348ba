// What this machine and this process's limits offer, read from /proc, /sys and the control group.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace cuvil::cli {

struct MachineLimits {
  int cores = 1;                   // usable: affinity and CPU quota
  int64_t memory_bytes = 0;        // of the machine
  int64_t memory_available = 0;    // without swapping
  int64_t memory_limit_bytes = 0;  // of the control group; 0: none
  std::string huge_pages;          // transparent huge pages: "always", "madvise", "never", ""
};

MachineLimits ReadMachineLimits();

// {"cores", "memory_bytes", "memory_available_bytes", "memory_limit_bytes", "huge_pages",
// "amx_note"}
Json LimitsJson(const MachineLimits& limits);

}  // namespace cuvil::cli
