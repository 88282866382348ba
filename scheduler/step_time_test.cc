#include "scheduler/step_time.h"

#include "gtest/gtest.h"

namespace cuvil::scheduler {
namespace {

TEST(StepTimeModel, FindsBaseRowsAndKeys) {
  StepTimeModel model;
  EXPECT_FALSE(model.known());
  for (int i = 0; i < 200; ++i) {
    const int64_t rows = 1 + (i * 7) % 40, keys = rows * (10 + (i * 13) % 900);
    model.Add({rows, keys}, 10'000 + 500 * rows + keys);
  }
  // The prior weighs a thousandth.
  EXPECT_NEAR(model.base_us(), 10'000, 200);
  EXPECT_NEAR(model.per_row_us(), 500, 20);
  EXPECT_NEAR(model.per_key_us(), 1, 0.02);
  EXPECT_NEAR(model.Predict({20, 2000}), 22'000, 200);
  EXPECT_NEAR(model.Extra({20, 2000}), 12'000, 300);
  EXPECT_NEAR(static_cast<double>(model.RowsWithin(15'000, 1000)), 10, 1);
  EXPECT_EQ(model.RowsWithin(100, 1000), 0);
}

TEST(StepTimeModel, StepsOfOneSizeCountAsAllRows) {
  StepTimeModel model;
  for (int i = 0; i < 100; ++i) model.Add({4, 400}, 400);
  EXPECT_NEAR(model.Predict({4, 400}), 400, 1);
  // One equation for three unknowns: the prior's answer is the nearest to "all of it is rows".
  EXPECT_NEAR(model.per_row_us(), 100, 1);
  EXPECT_NEAR(model.base_us(), 0, 1);
  EXPECT_NEAR(model.per_key_us(), 0, 0.01);
}

TEST(StepTimeModel, FollowsChangeAndShrugsOffAHiccup) {
  StepTimeModel model;
  for (int i = 0; i < 100; ++i) model.Add({1 + i % 8}, 100 * (1 + i % 8));
  model.Add({4}, 10'000'000);
  EXPECT_LT(model.Predict({4}), 600);
  for (int i = 0; i < 200; ++i) model.Add({1 + i % 8}, 300 * (1 + i % 8));
  EXPECT_NEAR(model.Predict({4}), 1200, 60);
}

TEST(StepTimeModel, NothingGetsCheaperWithLoad) {
  StepTimeModel model;
  for (int i = 0; i < 20; ++i) model.Add({1 + i, 20 - i}, 1000 - 10 * i);
  EXPECT_GE(model.base_us(), 0);
  EXPECT_GE(model.per_row_us(), 0);
  EXPECT_GE(model.per_key_us(), 0);
}

TEST(StepTimeModel, FlatStepsHaveNearlyNoRowLimit) {
  StepTimeModel model;
  for (int i = 0; i < 200; ++i) model.Add({1 + i % 20}, 500);
  EXPECT_GT(model.RowsWithin(100, 0), 150);
}

}  // namespace
}  // namespace cuvil::scheduler
