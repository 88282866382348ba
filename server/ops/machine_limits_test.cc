#include "server/ops/machine_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cuvil::ops {
namespace {

using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

MachineLimits Machine() {
  MachineLimits m;
  m.cores = m.cores_affinity = 8;
  m.memory_bytes = 32 * kGiB;
  m.memory_available = 20 * kGiB;
  return m;
}

TEST(SizeServerTest, AFreeMachineGivesItsAvailableMemory) {
  const Sizing size = SizeServer(Config(), Machine());
  EXPECT_EQ(size.threads, 8);
  EXPECT_EQ(size.memory_bytes, 19 * kGiB);
  EXPECT_EQ(size.sentence,
            "8 threads (8 cores), 19.0 GiB memory (available memory 20.0 GiB less 1.0 GiB)");
  EXPECT_EQ(size.warning, "");
}

TEST(SizeServerTest, TheTightestLimitCounts) {
  MachineLimits m = Machine();
  m.cores = 2;
  m.cpu_quota = 2.5;
  m.memory_limit_bytes = 10 * kGiB;
  EXPECT_THAT(SizeServer(Config(), m).sentence, HasSubstr("2 threads (8 cores, CPU quota 2.5)"));
  EXPECT_THAT(SizeServer(Config(), m).sentence, HasSubstr("the control group's memory limit 10.0"));
  m.memory_high_bytes = 5 * kGiB;
  EXPECT_THAT(SizeServer(Config(), m).sentence, HasSubstr("the control group's memory.high 5.0"));
  EXPECT_LT(SizeServer(Config(), m).memory_bytes, 5 * kGiB);
  m.memory_available = 1 * kGiB;
  EXPECT_THAT(SizeServer(Config(), m).sentence, HasSubstr("available memory 1.0 GiB"));
}

TEST(SizeServerTest, WhatIsSetWinsAndTooMuchIsSaid) {
  Config config;
  config.threads = 16;
  config.memory_limit = 30 * kGiB;
  const Sizing size = SizeServer(config, Machine());
  EXPECT_EQ(size.threads, 16);
  EXPECT_EQ(size.memory_bytes, 30 * kGiB);
  EXPECT_THAT(size.warning, HasSubstr("threads is 16 but 8"));
  EXPECT_THAT(size.warning, HasSubstr("memory_limit is 30.0 GiB but available memory is 20.0 GiB"));
}

TEST(SizeServerTest, TinyAndUnknownMachinesDoNotGoNegative) {
  MachineLimits m;
  EXPECT_EQ(SizeServer(Config(), m).memory_bytes, 0);
  EXPECT_THAT(SizeServer(Config(), m).sentence, HasSubstr("unknown memory"));
  m.memory_available = 1 << 20;
  EXPECT_EQ(SizeServer(Config(), m).memory_bytes, 0);
  EXPECT_EQ(SizeServer(Config(), m).threads, 1);
}

TEST(SizeServerTest, ThisMachineHasASize) {
  const Sizing size = SizeServer(Config(), ReadMachineLimits());
  EXPECT_GE(size.threads, 1);
  EXPECT_GT(size.memory_bytes, 0) << size.sentence;
}

}  // namespace
}  // namespace cuvil::ops
