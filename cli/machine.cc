#include "cli/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/cpu.h"

namespace cuvil::cli {
namespace {

// "MemAvailable:   123 kB" of /proc/meminfo, in bytes; 0 when absent.
int64_t MemInfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  std::string rest;
  while (file >> key >> kilobytes && std::getline(file, rest)) {
    if (key == name + ":") return kilobytes * 1024;
  }
  return 0;
}

// The tightest memory.max from this process's control group up (version 2), or the version 1 limit.
int64_t GroupMemoryLimit(int64_t machine) {
  std::ifstream group("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(group, line)) {
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  }
  int64_t limit = 0;
  const auto consider = [&](const std::string& name) {
    std::ifstream file(name);
    int64_t bytes = 0;
    if (file >> bytes && bytes > 0 && bytes < machine)
      limit = limit == 0 ? bytes : std::min(limit, bytes);
  };
  for (;;) {
    consider("/sys/fs/cgroup" + path + "/memory.max");
    if (path.empty() || path == "/") break;
    path.resize(path.rfind('/'));
  }
  consider("/sys/fs/cgroup/memory.max");
  consider("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  return limit;
}

// The choice in brackets of "always [madvise] never".
std::string HugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string word;
  while (file >> word) {
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "";
}

}  // namespace

MachineLimits ReadMachineLimits() {
  MachineLimits m;
  m.cores = UsableCores();
  m.memory_bytes = MemInfo("MemTotal");
  m.memory_available = MemInfo("MemAvailable");
  m.memory_limit_bytes = GroupMemoryLimit(m.memory_bytes);
  m.huge_pages = HugePages();
  return m;
}

Json LimitsJson(const MachineLimits& m) {
  return {{"cores", m.cores},
          {"memory_bytes", m.memory_bytes},
          {"memory_available_bytes", m.memory_available},
          {"memory_limit_bytes", m.memory_limit_bytes},
          {"huge_pages", m.huge_pages},
          {"amx_note", AcquireCpuFeatures().amx_note}};
}

}  // namespace cuvil::cli
