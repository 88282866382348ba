#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace cuvil {
namespace {

// Control group trees are a handful of levels deep; a path from /proc is not trusted to be.
constexpr int kGroupLevelsMax = 64;

struct GroupPaths {
  std::string unified;      // version 2: "0::/path"
  std::string memory, cpu;  // version 1: "4:memory:/path"
  bool has_unified = false, has_memory = false, has_cpu = false;
};

bool ListHas(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

GroupPaths ReadGroupPaths(const std::string& root) {
  GroupPaths paths;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      paths.unified = path;
      paths.has_unified = true;
    }
    if (ListHas(controllers, "memory")) {
      paths.memory = path;
      paths.has_memory = true;
    }
    if (ListHas(controllers, "cpu")) {
      paths.cpu = path;
      paths.has_cpu = true;
    }
  }
  return paths;
}

// The group's folder, its parents and the mount itself: inside a container the path is often one
// of the host, of which only the mount is visible.
std::vector<std::string> Levels(const std::string& mount, std::string path) {
  std::vector<std::string> levels;
  for (int i = 0; i < kGroupLevelsMax && path.size() > 1 && path.front() == '/'; ++i) {
    levels.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  levels.push_back(mount);
  return levels;
}

// The first number of a file; 0 when it is absent, "max" or negative.
int64_t NumberIn(const std::string& name) {
  std::ifstream file(name);
  int64_t value = 0;
  return file >> value && value > 0 ? value : 0;
}

template <typename T>
void Tighten(T value, T* limit) {
  if (value > 0) *limit = *limit == 0 ? value : std::min(*limit, value);
}

void ReadVersion2(const std::string& root, const GroupPaths& paths, ControlGroupLimits* limits) {
  for (const std::string& level : Levels(root + "/sys/fs/cgroup", paths.unified)) {
    Tighten(NumberIn(level + "/memory.max"), &limits->memory_max);
    Tighten(NumberIn(level + "/memory.high"), &limits->memory_high);
    std::ifstream cpu(level + "/cpu.max");
    double quota = 0, period = 0;
    if (cpu >> quota >> period && period > 0) Tighten(quota / period, &limits->cpu_quota);
  }
}

void ReadVersion1(const std::string& root, const GroupPaths& paths, ControlGroupLimits* limits) {
  for (const std::string& level : Levels(root + "/sys/fs/cgroup/memory", paths.memory)) {
    Tighten(NumberIn(level + "/memory.limit_in_bytes"), &limits->memory_max);
  }
  for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    for (const std::string& level : Levels(root + mount, paths.cpu)) {
      const double quota = static_cast<double>(NumberIn(level + "/cpu.cfs_quota_us"));
      const double period = static_cast<double>(NumberIn(level + "/cpu.cfs_period_us"));
      if (period > 0) Tighten(quota / period, &limits->cpu_quota);
    }
  }
}

// "MemAvailable:   123 kB" of /proc/meminfo, in bytes; 0 when absent.
int64_t MemInfo(const std::string& root, const std::string& name) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  std::string rest;
  while (file >> key >> kilobytes && std::getline(file, rest)) {
    if (key == name + ":") return kilobytes * 1024;
  }
  return 0;
}

// The choice in brackets of "always [madvise] never".
std::string HugePages(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  std::string word;
  while (file >> word) {
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "";
}

int AffinityCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

ControlGroupLimits ReadControlGroupLimits(const std::string& root) {
  ControlGroupLimits limits;
  const GroupPaths paths = ReadGroupPaths(root);
  if (paths.has_unified) ReadVersion2(root, paths, &limits);
  if (paths.has_memory || paths.has_cpu) ReadVersion1(root, paths, &limits);
  // On a hybrid system the controllers are version 1's and the unified tree has none.
  limits.version = paths.has_memory || paths.has_cpu ? 1 : paths.has_unified ? 2 : 0;
  return limits;
}

int CoresWithin(int cores_affinity, double cpu_quota) {
  const int cores = std::max(1, cores_affinity);
  if (cpu_quota <= 0 || cpu_quota >= cores) return cores;
  return std::max(1, static_cast<int>(cpu_quota));
}

MachineLimits ReadMachineLimits(const std::string& root) {
  const ControlGroupLimits group = ReadControlGroupLimits(root);
  MachineLimits m;
  m.cores_affinity = AffinityCores();
  m.cpu_quota = group.cpu_quota;
  m.cores = CoresWithin(m.cores_affinity, m.cpu_quota);
  m.memory_bytes = MemInfo(root, "MemTotal");
  m.memory_available = MemInfo(root, "MemAvailable");
  // Version 1 writes "no limit" as a number far beyond any machine.
  const auto real = [&](int64_t limit) { return limit < m.memory_bytes ? limit : 0; };
  m.memory_limit_bytes = real(group.memory_max);
  m.memory_high_bytes = real(group.memory_high);
  m.huge_pages = HugePages(root);
  return m;
}

}  // namespace cuvil
