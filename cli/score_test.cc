#include "cli/score.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Windows, WholeTextScoresEveryPrediction) {
  const auto windows = Windows(5, 0, 128);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 1u);
  EXPECT_EQ(windows->front().first_scored, 0);
  EXPECT_EQ(windows->front().scored(), 4);  // tokens 1 to 4
}

TEST(Windows, LastTokenNeedsNoPlaceInTheContext) {
  EXPECT_TRUE(Windows(129, 0, 128).ok());
  EXPECT_THAT(std::string(Windows(130, 0, 128).status().message()), HasSubstr("--window"));
}

TEST(Windows, ScoresSecondHalvesAndDropsTheRemainder) {
  const auto windows = Windows(19, 8, 128);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 2u);
  EXPECT_EQ((*windows)[1].begin, 8);
  // Tokens 8/2 + 1 = 5 to 7, which rows 4 to 6 predict.
  EXPECT_EQ((*windows)[1].first_scored, 4);
  EXPECT_EQ((*windows)[1].last_scored, 6);
}

TEST(Windows, OddWindow) {
  const auto windows = Windows(9, 5, 128);
  ASSERT_TRUE(windows.ok());
  // Tokens 5/2 + 1 = 3 to 4.
  EXPECT_EQ(windows->front().first_scored, 2);
  EXPECT_EQ(windows->front().scored(), 2);
}

TEST(Windows, RefusesWhatLeavesNothingToScore) {
  EXPECT_FALSE(Windows(1, 0, 128).ok());
  EXPECT_FALSE(Windows(0, 0, 128).ok());
  EXPECT_FALSE(Windows(100, 2, 128).ok());
  EXPECT_FALSE(Windows(100, 129, 128).ok());
  EXPECT_FALSE(Windows(7, 8, 128).ok());
}

TEST(LogSumExp, StableForLargeLogits) {
  const float logits[] = {1000, 1000, -std::numeric_limits<float>::infinity()};
  EXPECT_NEAR(LogSumExp(logits), 1000 + std::log(2.0), 1e-9);
}

TEST(TopLogits, LargestFirstAndLowerIdsAmongEquals) {
  const float logits[] = {1, 3, 2, 3};
  EXPECT_THAT(TopLogits(logits, 3), ElementsAre(Pair(1, 3.0f), Pair(3, 3.0f), Pair(2, 2.0f)));
  EXPECT_EQ(TopLogits(logits, 9).size(), 4u);
  EXPECT_TRUE(TopLogits(logits, 0).empty());
}

TEST(Divergence, ZeroForShiftedLogitsAndKnownValue) {
  const float a[] = {0, 1, 2}, shifted[] = {5, 6, 7};
  EXPECT_NEAR(Divergence(a, shifted), 0, 1e-12);
  // P = (1/2, 1/2), Q = (1/4, 3/4): (log 2 + log 2/3) / 2.
  const float p[] = {0, 0}, q[] = {0, std::log(3.0f)};
  EXPECT_NEAR(Divergence(p, q), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-7);
  EXPECT_GT(Divergence(q, p), 0);
}

TEST(ArgMax, LowestIdAmongEquals) {
  const float logits[] = {1, 3, 3};
  EXPECT_EQ(ArgMax(logits), 1);
}

}  // namespace
}  // namespace cuvil::cli
