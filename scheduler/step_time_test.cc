#include "scheduler/step_time.h"

#include "gtest/gtest.h"

namespace cuvil::scheduler {
namespace {

TEST(StepTimeModel, FindsBaseAndSlope) {
  StepTimeModel model;
  EXPECT_FALSE(model.known());
  for (int i = 0; i < 50; ++i) {
    const int64_t rows = 1 + (i * 7) % 40;
    model.Add(rows, 1000 + 50 * rows);
  }
  EXPECT_NEAR(model.base_us(), 1000, 1);
  EXPECT_NEAR(model.per_row_us(), 50, 0.1);
  EXPECT_EQ(model.RowsWithin(2025), 20);
  EXPECT_EQ(model.RowsWithin(900), 0);
}

TEST(StepTimeModel, StepsOfOneSizeCountAsAllRows) {
  StepTimeModel model;
  for (int i = 0; i < 10; ++i) model.Add(4, 400);
  EXPECT_DOUBLE_EQ(model.base_us(), 0);
  EXPECT_DOUBLE_EQ(model.per_row_us(), 100);
}

TEST(StepTimeModel, FollowsChangeAndShrugsOffAHiccup) {
  StepTimeModel model;
  for (int i = 0; i < 100; ++i) model.Add(1 + i % 8, 100 * (1 + i % 8));
  model.Add(4, 10'000'000);
  EXPECT_LT(model.Predict(4), 600);
  for (int i = 0; i < 200; ++i) model.Add(1 + i % 8, 300 * (1 + i % 8));
  EXPECT_NEAR(model.Predict(4), 1200, 60);
}

TEST(StepTimeModel, FlatStepsHaveNoRowLimit) {
  StepTimeModel model;
  for (int i = 0; i < 20; ++i) model.Add(1 + i, 500);
  EXPECT_GT(model.RowsWithin(600), 1'000'000);
}

}  // namespace
}  // namespace cuvil::scheduler
