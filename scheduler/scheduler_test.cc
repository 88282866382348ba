#include "scheduler/scheduler.h"

#include "gtest/gtest.h"

namespace cuvil::scheduler {
namespace {
TEST(Scheduler, Idle) {
  Scheduler s({.pages = 4, .context = 8});
  EXPECT_TRUE(s.idle());
}
}  // namespace
}  // namespace cuvil::scheduler
