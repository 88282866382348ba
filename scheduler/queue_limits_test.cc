#include "scheduler/queue_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cuvil::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr QueueLimits kLimits{.places = 8, .sequences = 2, .tokens = 100};

std::string Refusal(const QueueState& state, int64_t sequences, int64_t tokens) {
  const absl::Status status = CheckQueue(kLimits, state, sequences, tokens);
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  return std::string(status.message());
}

// An idle engine told whoever asked for more than the queue to try again, for ever.
TEST(QueueLimits, WhatFindsAPlaceDoesNotWait) {
  EXPECT_EQ(Refusal({}, 8, 8 * 100), "");
  EXPECT_EQ(Refusal({.present = 7, .waiting_tokens = 700}, 1, 5000), "");
}

TEST(QueueLimits, WhatWaitsFitsBothLimits) {
  EXPECT_EQ(Refusal({.present = 8}, 2, 100), "");
  EXPECT_EQ(Refusal({.present = 6}, 4, 4), "");
  EXPECT_THAT(
      Refusal({.present = 9}, 2, 2),
      HasSubstr("1 sequences wait for a place, and 2 more exceed queue_requests, which is 2"));
  EXPECT_THAT(Refusal({.present = 8, .waiting_tokens = 60}, 1, 41),
              HasSubstr("60 prompt tokens wait, and 41 more exceed queue_tokens, which is 100"));
  EXPECT_EQ(Refusal({.present = 8, .waiting_tokens = 60}, 1, 40), "");
}

TEST(QueueLimits, WhatIsTooLargeToWaitIsToldWhenItCanStart) {
  EXPECT_THAT(
      Refusal({.present = 7}, 2, 101),
      HasSubstr("101 prompt tokens and queue_tokens is 100: it cannot wait, only start when "
                "2 places are free"));
}

}  // namespace
}  // namespace cuvil::scheduler
