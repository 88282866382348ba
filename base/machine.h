// What this machine and this process's limits offer, read from /proc, /sys and the control groups
// (versions 1 and 2). All paths hang below a root, so that tests read folders of their own.
#pragma once

#include <cstdint>
#include <string>

namespace cuvil {

// The tightest limits from this process's control group up to the top one.
struct ControlGroupLimits {
  int version = 0;          // 2, 1, or 0: no control group is readable
  int64_t memory_max = 0;   // bytes; above it the kernel kills. 0: none
  int64_t memory_high = 0;  // bytes; above it the kernel slows allocation (version 2). 0: none
  double cpu_quota = 0;     // cores' worth of time per period. 0: none
};

struct MachineLimits {
  int cores = 1;                   // usable: affinity and CPU quota
  int cores_affinity = 1;          // by the affinity mask alone
  double cpu_quota = 0;            // of the control group, in cores; 0: none
  int64_t memory_bytes = 0;        // of the machine
  int64_t memory_available = 0;    // without swapping
  int64_t memory_limit_bytes = 0;  // hard, of the control group; 0: none
  int64_t memory_high_bytes = 0;   // soft, of the control group; 0: none
  std::string huge_pages;          // transparent huge pages: "always", "madvise", "never", ""
};

// `root` is "" for the running system. Limits that cannot be read count as none.
ControlGroupLimits ReadControlGroupLimits(const std::string& root = "");
MachineLimits ReadMachineLimits(const std::string& root = "");

// min(affinity, max(1, floor(quota))): a worker without a core of its own stalls every step.
int CoresWithin(int cores_affinity, double cpu_quota);

}  // namespace cuvil
