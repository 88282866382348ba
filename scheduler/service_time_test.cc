#include "scheduler/service_time.h"

#include "gtest/gtest.h"

namespace cuvil::scheduler {
namespace {

SequenceStats Stayed(int64_t scheduled_us, int64_t first_token_us, int64_t new_tokens) {
  return {.new_tokens = new_tokens, .scheduled_us = scheduled_us, .first_token_us = first_token_us};
}

TEST(ServiceTime, KnowsNoWaitAndNoStayUntilOneWasSeen) {
  const ServiceTime time(64);
  EXPECT_EQ(time.WaitUs(1'000'000), 0);
  EXPECT_EQ(time.StayUs(-1), 0);
  EXPECT_EQ(time.NewTokens(-1), 64);
  EXPECT_EQ(time.NewTokens(10), 10);
  EXPECT_EQ(time.NewTokens(100), 64);
  EXPECT_EQ(time.Rows(7, 100), 71);
}

TEST(ServiceTime, WaitsAsLongAsTheQueuedRowsTakeInSaturatedSteps) {
  ServiceTime time;
  for (int i = 0; i < 50; ++i) {
    time.AddSaturatedStep(8, 10'000);   // decode
    time.AddSaturatedStep(72, 30'000);  // decode and a prompt
  }
  // 80 rows in 40 ms; the last step weighs a little more than the first.
  EXPECT_NEAR(static_cast<double>(time.WaitUs(800)), 400'000, 4'000);
}

TEST(ServiceTime, FollowsAChangedRate) {
  ServiceTime time;
  for (int i = 0; i < 1000; ++i) time.AddSaturatedStep(10, 10'000);
  for (int i = 0; i < 1000; ++i) time.AddSaturatedStep(10, 40'000);
  EXPECT_NEAR(static_cast<double>(time.WaitUs(10)), 40'000, 1'000);
}

TEST(ServiceTime, StaysForItsFirstTokenAndTheOthers) {
  ServiceTime time;
  time.AddEnded(Stayed(1'000, 21'000, 11), -1, 121'000);  // 20 ms, then 10 x 10 ms
  EXPECT_EQ(time.StayUs(1), 20'000);
  EXPECT_EQ(time.StayUs(0), 20'000);
  // Two new tokens are expected of the next: a tenth of eleven.
  EXPECT_EQ(time.NewTokens(-1), 2);
  EXPECT_EQ(time.StayUs(2), 30'000);
  for (int i = 0; i < 200; ++i) time.AddEnded(Stayed(1'000, 21'000, 11), -1, 121'000);
  EXPECT_EQ(time.NewTokens(-1), 11);
  EXPECT_NEAR(static_cast<double>(time.StayUs(-1)), 120'000, 10);
}

TEST(ServiceTime, ItsStayCoversHowMuchOthersVaried) {
  ServiceTime time;
  for (int i = 0; i < 200; ++i)
    time.AddEnded(Stayed(0, 20'000, 1), -1, i % 2 == 0 ? 20'000 : 30'000);
  // The mean is that of first tokens, 20 ms; every other one stays 10 ms longer.
  EXPECT_NEAR(static_cast<double>(time.StayUs(1)), 20'000 + 4 * 5'000, 1'200);
}

TEST(ServiceTime, ExpectsTheShareOfItsLimitThatOthersUsed) {
  ServiceTime time;
  for (int i = 0; i < 200; ++i) {
    time.AddEnded(Stayed(0, 1'000, 8), 8, 2'000);
    time.AddEnded(Stayed(0, 1'000, 24), 24, 3'000);
  }
  EXPECT_EQ(time.NewTokens(8), 8);
  EXPECT_GE(time.NewTokens(24), 23);
  EXPECT_LT(time.NewTokens(-1), 18);
}

TEST(ServiceTime, ASequenceOfOneTokenSaysNothingOfTheTimeBetweenTwo) {
  ServiceTime time(100);
  time.AddEnded(Stayed(0, 5'000, 1), -1, 5'000);
  EXPECT_EQ(time.StayUs(100), 5'000);
}

}  // namespace
}  // namespace cuvil::scheduler
