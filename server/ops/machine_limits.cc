#include "server/ops/machine_limits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cuvil::ops {
namespace {

// What stays free below the limit: sockets, buffers, stacks and code of the process itself, and
// the file cache that weights are read through.
constexpr int64_t kReserveBytesMin = int64_t{64} << 20;
constexpr double kReserveFraction = 0.05;

struct Bound {
  int64_t bytes = 0;
  std::string from;
};

Bound TightestMemory(const MachineLimits& m) {
  Bound bound{m.memory_available, "available memory"};
  const auto consider = [&](int64_t bytes, const char* from) {
    if (bytes > 0 && (bound.bytes == 0 || bytes < bound.bytes)) bound = {bytes, from};
  };
  consider(m.memory_limit_bytes, "the control group's memory limit");
  // Beyond it the kernel throttles every allocation of the group: a stall rather than a kill.
  consider(m.memory_high_bytes, "the control group's memory.high");
  return bound;
}

std::string CoresText(const MachineLimits& m) {
  std::string text = absl::StrCat(m.cores_affinity, m.cores_affinity == 1 ? " core" : " cores");
  if (m.cpu_quota > 0) absl::StrAppendFormat(&text, ", CPU quota %.3g", m.cpu_quota);
  return text;
}

}  // namespace

std::string BytesText(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) return absl::StrFormat("%.1f GiB", bytes / 1073741824.0);
  if (bytes >= int64_t{1} << 20) return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
  return absl::StrCat(bytes, " bytes");
}

Sizing SizeServer(const Config& config, const MachineLimits& m) {
  Sizing size;
  std::string threads_from = CoresText(m), memory_from;
  size.threads = m.cores;
  if (config.threads > 0) {
    size.threads = static_cast<int>(config.threads);
    absl::StrAppend(&threads_from, "; set by threads");
    if (size.threads > m.cores) {
      size.warning = absl::StrCat("threads is ", size.threads, " but ", m.cores,
                                  " can run at a time; a step waits for the slowest");
    }
  }
  const Bound bound = TightestMemory(m);
  const int64_t reserve = std::max(
      kReserveBytesMin, static_cast<int64_t>(static_cast<double>(bound.bytes) * kReserveFraction));
  if (config.memory_limit > 0) {
    size.memory_bytes = config.memory_limit;
    memory_from = "set by memory_limit";
    if (bound.bytes > 0 && config.memory_limit > bound.bytes) {
      absl::StrAppend(&size.warning, size.warning.empty() ? "" : "; ", "memory_limit is ",
                      BytesText(config.memory_limit), " but ", bound.from, " is ",
                      BytesText(bound.bytes));
    }
  } else {
    size.memory_bytes = std::max<int64_t>(0, bound.bytes - reserve);
    memory_from = bound.bytes > 0 ? absl::StrCat(bound.from, " ", BytesText(bound.bytes), " less ",
                                                 BytesText(reserve))
                                  : "limits could not be read";
  }
  size.sentence =
      absl::StrCat(size.threads, size.threads == 1 ? " thread (" : " threads (", threads_from,
                   "), ", size.memory_bytes > 0 ? BytesText(size.memory_bytes) : "unknown",
                   " memory (", memory_from, ")");
  return size;
}

}  // namespace cuvil::ops
