// What counts at once, what waits for a restart, and what must not happen by mistake.
#include "server/ops/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ops/test_keys.h"
#include "server/ops/values.h"

namespace cuvil::ops {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ReloadTest, KeysCountAtOnce) {
  Config running, read;
  running.api_keys = {TestKey("a", "t"), TestKey("b", "t"), TestKey("c", "t")};
  read.api_keys = {TestKey("a", "t"), TestKey("b", "other"), TestKey("d", "t")};
  read.api_keys_file = "/etc/cuvil/keys";
  const auto reload = PlanReload(running, read);
  ASSERT_TRUE(reload.ok()) << reload.status();
  EXPECT_EQ(reload->changed, "3 API keys now: 1 added, 1 removed, 1 with other rights");
  EXPECT_EQ(reload->waits, "");
  EXPECT_EQ(reload->keys.Authenticate("b")->id, "other");
  EXPECT_FALSE(reload->keys.Authenticate("c").ok());
  EXPECT_TRUE(reload->keys.Authenticate("d").ok());
}

TEST(ReloadTest, WhatCountsOnlyAfterARestartIsNamed) {
  Config running, read;
  running.api_keys = {TestKey("a", "t")};
  read.api_keys = {TestKey("a", "t", 3)};
  read.max_running = 7;
  read.listen = "127.0.0.1:9";
  const auto reload = PlanReload(running, read);
  ASSERT_TRUE(reload.ok()) << reload.status();
  EXPECT_THAT(reload->waits, HasSubstr("listen, max_running, weights of tenants"));
  EXPECT_THAT(reload->waits, Not(HasSubstr("api_keys")));
}

TEST(ReloadTest, TheLastKeyIsNotLostByMistake) {
  Config running;
  running.api_keys = {TestKey("a", "t")};
  EXPECT_EQ(PlanReload(running, Config()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(PlanReload(Config(), running).ok());
  EXPECT_TRUE(PlanReload(Config(), Config()).ok());
  Config twice = running;
  twice.api_keys.push_back(TestKey("a", "u"));
  EXPECT_EQ(PlanReload(running, twice).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cuvil::ops
