// process_*, as the Prometheus client libraries of other languages name them.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "prometheus/metric_family.h"
#include "server/ops/metrics.h"

namespace cuvil::ops {
namespace {

prometheus::MetricFamily Single(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {name, help, type, {metric}};
}

struct Stat {
  double cpu_s = 0, start_s = 0, threads = 0, virtual_bytes = 0, resident_bytes = 0;
};

double BootSeconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  double seconds = 0;
  while (file >> word) {
    if (word == "btime") {
      file >> seconds;
      break;
    }
  }
  return seconds;
}

// Fields of /proc/self/stat after the command's name, which may hold anything but ends in the last
// parenthesis; numbered as in proc(5).
Stat ReadStat() {
  std::ifstream file("/proc/self/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const size_t after = all.rfind(')');
  Stat stat;
  if (after == std::string::npos) return stat;
  std::istringstream fields(all.substr(after + 1));
  const double tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string field;
  for (int number = 3; fields >> field && number <= 24; ++number) {
    const double value = number == 3 ? 0 : std::strtod(field.c_str(), nullptr);
    if (number == 14 || number == 15) stat.cpu_s += value / tick;
    if (number == 20) stat.threads = value;
    if (number == 22) stat.start_s = BootSeconds() + value / tick;
    if (number == 23) stat.virtual_bytes = value;
    if (number == 24) {
      stat.resident_bytes = value * static_cast<double>(sysconf(_SC_PAGESIZE));
    }
  }
  return stat;
}

double OpenFiles() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++count;
  }
  // The directory itself was open while it was read.
  return count > 0 ? count - 1 : 0;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessFamilies() {
  using prometheus::MetricType;
  const Stat stat = ReadStat();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  return {
      Single("process_cpu_seconds_total", "Processor time, user and system", MetricType::Counter,
             stat.cpu_s),
      Single("process_start_time_seconds", "Start of the process, in seconds since 1970",
             MetricType::Gauge, stat.start_s),
      Single("process_threads", "Threads", MetricType::Gauge, stat.threads),
      Single("process_virtual_memory_bytes", "Address space", MetricType::Gauge,
             stat.virtual_bytes),
      Single("process_resident_memory_bytes", "Memory in use, shared included", MetricType::Gauge,
             stat.resident_bytes),
      Single("process_open_fds", "Open files and sockets", MetricType::Gauge, OpenFiles()),
      Single("process_max_fds", "Open files and sockets allowed", MetricType::Gauge,
             static_cast<double>(files.rlim_cur)),
  };
}

}  // namespace cuvil::ops
