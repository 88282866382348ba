// How large a server makes itself: from what it was told and what base/machine.h found.
#pragma once

#include <cstdint>
#include <string>

#include "base/machine.h"
#include "server/ops/config.h"

namespace cuvil::ops {

struct Sizing {
  int threads = 1;
  int64_t memory_bytes = 0;  // for weights, pages, workspace and code together; 0: unknown
  std::string sentence;      // for the log: both numbers and where they come from
  std::string warning;       // what was asked for and is more than there is; empty: nothing
};

// config.threads and config.memory_limit win; else every allowed core, and the tightest of the
// control group's limits and the machine's available memory, less what the rest of the process and
// the kernel's buffers need.
Sizing SizeServer(const Config& config, const MachineLimits& machine);

// "7.6 GiB", for people.
std::string BytesText(int64_t bytes);

}  // namespace cuvil::ops
