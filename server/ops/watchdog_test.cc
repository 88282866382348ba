#include "server/ops/watchdog.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cuvil::ops {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Watchdog::Time kStart = Watchdog::Time(seconds(1000));

TEST(WatchdogTest, IdleIsAliveForever) {
  Watchdog dog(seconds(10));
  EXPECT_TRUE(dog.Alive(kStart + std::chrono::hours(1000)));
  dog.StepBegin(kStart);
  dog.StepEnd(kStart + seconds(1), false);
  EXPECT_TRUE(dog.Alive(kStart + std::chrono::hours(1000)));
  EXPECT_EQ(dog.trips(), 0);
}

TEST(WatchdogTest, AStepThatNeverEndsTripsOnce) {
  Watchdog dog(seconds(10));
  dog.StepBegin(kStart);
  EXPECT_TRUE(dog.Alive(kStart + seconds(10)));
  EXPECT_FALSE(dog.Alive(kStart + seconds(10) + milliseconds(1)));
  EXPECT_FALSE(dog.Alive(kStart + seconds(60)));
  EXPECT_EQ(dog.trips(), 1);
  EXPECT_EQ(dog.Stalled(kStart + seconds(60)), seconds(60));
}

TEST(WatchdogTest, ProgressStartsTheClockAnewWhileWorkWaits) {
  Watchdog dog(seconds(10));
  dog.Progress(kStart);
  EXPECT_TRUE(dog.Alive(kStart + seconds(100)));  // nothing waits
  dog.StepBegin(kStart);
  dog.Progress(kStart + seconds(9));
  EXPECT_TRUE(dog.Alive(kStart + seconds(19)));
  EXPECT_FALSE(dog.Alive(kStart + seconds(20)));
}

TEST(WatchdogTest, WaitingWorkWithoutStepsTrips) {
  Watchdog dog(seconds(10));
  dog.Waiting(kStart, true);
  dog.Waiting(kStart + seconds(9), true);  // more work is no progress
  EXPECT_FALSE(dog.Alive(kStart + seconds(11)));
  dog.Waiting(kStart + seconds(12), false);  // the clients went away
  EXPECT_TRUE(dog.Alive(kStart + seconds(13)));
}

TEST(WatchdogTest, ProgressRevivesAndTheNextStallCountsAgain) {
  Watchdog dog(seconds(10));
  dog.StepBegin(kStart);
  EXPECT_FALSE(dog.Alive(kStart + seconds(20)));
  dog.StepEnd(kStart + seconds(21), true);
  EXPECT_TRUE(dog.Alive(kStart + seconds(22)));
  EXPECT_FALSE(dog.Alive(kStart + seconds(40)));
  EXPECT_EQ(dog.trips(), 2);
}

TEST(WatchdogTest, IdleTimeDoesNotCountAgainstNewWork) {
  Watchdog dog(seconds(10));
  dog.StepBegin(kStart);
  dog.StepEnd(kStart + seconds(1), false);
  dog.Waiting(kStart + seconds(500), true);
  EXPECT_TRUE(dog.Alive(kStart + seconds(505)));
  EXPECT_EQ(dog.Stalled(kStart + seconds(505)), seconds(5));
}

TEST(WatchdogTest, ZeroNeverTrips) {
  Watchdog dog(seconds(0));
  dog.StepBegin(kStart);
  EXPECT_TRUE(dog.Alive(kStart + std::chrono::hours(1000)));
}

TEST(WatchdogTest, AReaderBehindTheStepThreadIsNoStall) {
  Watchdog dog(seconds(10));
  dog.StepBegin(kStart);
  EXPECT_TRUE(dog.Alive(kStart - seconds(100)));
  EXPECT_EQ(dog.Stalled(kStart - seconds(100)), seconds(0));
}

TEST(WatchdogTest, PollingSeesStepsByTheirCount) {
  Watchdog dog(seconds(10));
  dog.Poll(kStart, 5, true);
  dog.Poll(kStart + seconds(8), 5, true);
  EXPECT_FALSE(dog.Alive(kStart + seconds(11)));
  dog.Poll(kStart + seconds(12), 6, true);
  EXPECT_TRUE(dog.Alive(kStart + seconds(21)));
  dog.Poll(kStart + seconds(22), 6, false);
  EXPECT_TRUE(dog.Alive(kStart + seconds(100)));
}

TEST(WatchdogTest, ManyAskersCountOneTrip) {
  Watchdog dog(seconds(1));
  dog.StepBegin(kStart);
  std::vector<std::thread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) EXPECT_FALSE(dog.Alive(kStart + seconds(2)));
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(dog.trips(), 1);
}

}  // namespace
}  // namespace cuvil::ops
