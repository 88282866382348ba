#include "scheduler/fair_share.h"

#include "gtest/gtest.h"

namespace cuvil::scheduler {
namespace {

TEST(FairShare, TagsGrowByTokensOverWeight) {
  FairShare fair;
  fair.Enter("a", 1);
  fair.Enter("b", 4);
  fair.Charge("a", 100);
  fair.Charge("b", 100);
  EXPECT_DOUBLE_EQ(fair.tag("a"), 100);
  EXPECT_DOUBLE_EQ(fair.tag("b"), 25);
}

TEST(FairShare, AbsenceSavesNothingUp) {
  FairShare fair;
  fair.Enter("a", 1);
  fair.Charge("a", 1000);
  fair.Enter("b", 1);
  EXPECT_DOUBLE_EQ(fair.tag("b"), 1000);
}

TEST(FairShare, LeavingDoesNotPayADebt) {
  FairShare fair;
  fair.Enter("a", 1);
  fair.Enter("b", 1);
  fair.Charge("a", 500);
  fair.Leave("a");
  fair.Enter("a", 1);
  EXPECT_DOUBLE_EQ(fair.tag("a"), 500);
  fair.Leave("a");
  fair.Charge("b", 900);
  fair.Enter("a", 1);  // b has had more by now
  EXPECT_DOUBLE_EQ(fair.tag("a"), 900);
}

TEST(FairShare, ForgetsWhoOwesNothing) {
  FairShare fair;
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = std::to_string(i);
    fair.Enter(name, 1);
    fair.Charge(name, 5);
    fair.Leave(name);
  }
  EXPECT_EQ(fair.tenants(), 0);
  fair.Enter("stays", 1);  // the virtual time stands still: debts are kept, but not without end
  for (int i = 0; i < 4'200; ++i) {
    const std::string name = std::to_string(i);
    fair.Enter(name, 1);
    fair.Charge(name, 5);
    fair.Leave(name);
  }
  EXPECT_LE(fair.tenants(), 4'098);
}

}  // namespace
}  // namespace cuvil::scheduler
