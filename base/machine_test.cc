#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cuvil {
namespace {

// A root folder with the files a test writes.
class MachineTest : public testing::Test {
 protected:
  MachineTest()
      : root_(testing::TempDir() + "/machine_" + std::to_string(getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, NothingReadableIsNoLimit) {
  const ControlGroupLimits limits = ReadControlGroupLimits(root_);
  EXPECT_EQ(limits.version, 0);
  EXPECT_EQ(limits.memory_max, 0);
  EXPECT_EQ(limits.memory_high, 0);
  EXPECT_EQ(limits.cpu_quota, 0);
}

TEST_F(MachineTest, Version2TakesTheTightestLevel) {
  Write("/proc/self/cgroup", "0::/pods/one/box\n");
  Write("/sys/fs/cgroup/pods/one/box/memory.max", "max\n");
  Write("/sys/fs/cgroup/pods/one/box/memory.high", "900\n");
  Write("/sys/fs/cgroup/pods/one/box/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pods/one/memory.max", "1000\n");
  Write("/sys/fs/cgroup/pods/one/cpu.max", "250000 100000\n");
  Write("/sys/fs/cgroup/pods/memory.max", "5000\n");
  Write("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  const ControlGroupLimits limits = ReadControlGroupLimits(root_);
  EXPECT_EQ(limits.version, 2);
  EXPECT_EQ(limits.memory_max, 1000);
  EXPECT_EQ(limits.memory_high, 900);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 2.5);
}

TEST_F(MachineTest, Version2InAContainerSeesOnlyTheMount) {
  Write("/proc/self/cgroup", "0::/../../host/path\n");
  Write("/sys/fs/cgroup/memory.max", "4096\n");
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  const ControlGroupLimits limits = ReadControlGroupLimits(root_);
  EXPECT_EQ(limits.memory_max, 4096);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 0.5);
}

TEST_F(MachineTest, Version1HasATreePerController) {
  Write("/proc/self/cgroup", "7:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/\n");
  Write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "2048\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const ControlGroupLimits limits = ReadControlGroupLimits(root_);
  EXPECT_EQ(limits.version, 1);
  EXPECT_EQ(limits.memory_max, 2048);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 1.5);
}

TEST_F(MachineTest, GarbageIsNoLimit) {
  Write("/proc/self/cgroup", "nonsense\n0::" + std::string(10000, '/') + "\n");
  Write("/sys/fs/cgroup/memory.max", "-5\n");
  Write("/sys/fs/cgroup/cpu.max", "100000 0\n");
  const ControlGroupLimits limits = ReadControlGroupLimits(root_);
  EXPECT_EQ(limits.memory_max, 0);
  EXPECT_EQ(limits.cpu_quota, 0);
}

TEST_F(MachineTest, LimitsBeyondTheMachineAreNone) {
  Write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n");
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory.high", "512000\n");
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const MachineLimits m = ReadMachineLimits(root_);
  EXPECT_EQ(m.memory_bytes, 1024000);
  EXPECT_EQ(m.memory_available, 819200);
  EXPECT_EQ(m.memory_limit_bytes, 0);
  EXPECT_EQ(m.memory_high_bytes, 512000);
  EXPECT_EQ(m.huge_pages, "madvise");
  EXPECT_GE(m.cores_affinity, m.cores);
}

TEST(CoresWithinTest, TheQuotaIsRoundedDownButNeverToNothing) {
  EXPECT_EQ(CoresWithin(8, 0), 8);
  EXPECT_EQ(CoresWithin(8, 2.5), 2);
  EXPECT_EQ(CoresWithin(8, 0.5), 1);
  EXPECT_EQ(CoresWithin(2, 16), 2);
  EXPECT_EQ(CoresWithin(0, 0), 1);
}

}  // namespace
}  // namespace cuvil
