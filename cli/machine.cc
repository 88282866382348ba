#include "cli/machine.h"

#include "base/cpu.h"

namespace cuvil::cli {

Json LimitsJson(const MachineLimits& m) {
  return {{"cores", m.cores},
          {"memory_bytes", m.memory_bytes},
          {"memory_available_bytes", m.memory_available},
          {"memory_limit_bytes", m.memory_limit_bytes},
          {"huge_pages", m.huge_pages},
          {"amx_note", AcquireCpuFeatures().amx_note}};
}

}  // namespace cuvil::cli
