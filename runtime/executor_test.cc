#include "runtime/executor.h"

#include <cfenv>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace cuvil::runtime {
namespace {

std::unique_ptr<Executor> MakeExecutor(int workers, int64_t scratch_bytes = 4096) {
  auto executor = Executor::Create({.workers = workers, .scratch_bytes = scratch_bytes});
  EXPECT_TRUE(executor.ok()) << executor.status();
  return *std::move(executor);
}

// out[tile] = sum(in[0..scalars[0])) + tile: every tile reads all the launch before it wrote, so a
// launch that starts early gives another sum (and a TSan report).
void SumAll(uint8_t* const* buffers, const int64_t* scalars, uint8_t* scratch, int64_t tile,
            int64_t first) {
  const uint64_t* in = reinterpret_cast<const uint64_t*>(buffers[0]);
  uint64_t* out = reinterpret_cast<uint64_t*>(buffers[1]);
  uint64_t* shared = reinterpret_cast<uint64_t*>(scratch);
  if (first != 0) shared[0] = std::accumulate(in, in + scalars[0], uint64_t{0});
  if (scalars[1] > 0 && tile % 7 == scalars[1] % 7) {
    std::this_thread::sleep_for(std::chrono::microseconds(scalars[1]));
  }
  out[tile] = shared[0] + static_cast<uint64_t>(tile);
}

class RandomLaunches : public testing::TestWithParam<int> {};

TEST_P(RandomLaunches, EveryTileRunsOnceAfterTheLaunchBefore) {
  std::mt19937 random(GetParam() * 977 + 1);
  const std::unique_ptr<Executor> executor = MakeExecutor(GetParam());
  constexpr int kTilesMax = 40;
  for (int step = 0; step < 60; ++step) {
    std::vector<std::vector<uint64_t>> rows(1, {uint64_t{1} + random() % 100});
    std::vector<BoundLaunch> launches;
    std::vector<uint64_t> want;
    const int count = static_cast<int>(random() % 12);
    rows.reserve(count + 1);
    for (int i = 0; i < count; ++i) {
      const int64_t tiles = random() % 3 == 0 ? random() % 3 : random() % kTilesMax;
      const std::vector<uint64_t>& in = rows.back();
      const int64_t in_size = static_cast<int64_t>(in.size());
      const int64_t sleep_us = random() % 4 == 0 ? random() % 60 : 0;
      std::vector<uint64_t> out(tiles, 0);
      BoundLaunch launch{.fn = SumAll, .tiles = tiles};
      launch.buffers = {reinterpret_cast<uint8_t*>(const_cast<uint64_t*>(in.data())), nullptr};
      launch.scalars = {in_size, sleep_us};
      if (tiles > 0) {
        rows.push_back(std::move(out));
        launch.buffers[1] = reinterpret_cast<uint8_t*>(rows.back().data());
      }
      launches.push_back(std::move(launch));
    }
    executor->Run(launches);
    for (size_t i = 1; i < rows.size(); ++i) {
      const uint64_t sum = std::accumulate(rows[i - 1].begin(), rows[i - 1].end(), uint64_t{0});
      for (size_t tile = 0; tile < rows[i].size(); ++tile) {
        ASSERT_EQ(rows[i][tile], sum + tile) << "step " << step << " row " << i;
      }
    }
    // Long enough for the workers to fall asleep, so that the next step has to wake them.
    if (step % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, RandomLaunches, testing::Values(1, 2, 3, 4));

void CountTile(uint8_t* const* buffers, const int64_t*, uint8_t*, int64_t tile, int64_t) {
  reinterpret_cast<std::atomic<int>*>(buffers[0])[tile].fetch_add(1);
}

TEST(ExecutorTest, ManyShortLaunchesClaimEveryTileExactlyOnce) {
  const std::unique_ptr<Executor> executor = MakeExecutor(4);
  std::vector<std::atomic<int>> counts(64);
  std::vector<BoundLaunch> launches(500, {.fn = CountTile, .tiles = 64});
  for (BoundLaunch& launch : launches) {
    launch.buffers = {reinterpret_cast<uint8_t*>(counts.data())};
  }
  executor->Run(launches);
  executor->Run(launches);
  for (const std::atomic<int>& count : counts) EXPECT_EQ(count.load(), 1000);
}

// Tile 0 stays until every other tile is finished: 10 s is for a machine that is badly overloaded.
void StuckFirstTile(uint8_t* const* buffers, const int64_t* scalars, uint8_t*, int64_t tile,
                    int64_t) {
  std::atomic<int64_t>& others = *reinterpret_cast<std::atomic<int64_t>*>(buffers[0]);
  if (tile != 0) {
    others.fetch_add(1);
    return;
  }
  for (int ms = 0; ms < 10'000 && others.load() < scalars[0]; ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  *reinterpret_cast<int64_t*>(buffers[1]) = others.load();
}

TEST(ExecutorTest, AStuckTileDoesNotHoldTheOthers) {
  const std::unique_ptr<Executor> executor = MakeExecutor(2);
  std::atomic<int64_t> others{0};
  int64_t seen = 0;
  BoundLaunch launch{.fn = StuckFirstTile, .tiles = 50};
  launch.buffers = {reinterpret_cast<uint8_t*>(&others), reinterpret_cast<uint8_t*>(&seen)};
  launch.scalars = {49};
  executor->Run({launch});
  EXPECT_EQ(seen, 49);
}

void SleepOnFirstTile(uint8_t* const*, const int64_t*, uint8_t*, int64_t tile, int64_t) {
  if (tile == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void RecordFirst(uint8_t* const* buffers, const int64_t* scalars, uint8_t* scratch, int64_t tile,
                 int64_t first) {
  int64_t* kept = reinterpret_cast<int64_t*>(scratch);
  if (first != 0) kept[0] = scalars[0];
  reinterpret_cast<int64_t*>(buffers[0])[tile] = kept[0];
  std::this_thread::yield();
}

TEST(ExecutorTest, EveryWorkersFirstTileOfALaunchSaysSo) {
  const std::unique_ptr<Executor> executor = MakeExecutor(3);
  std::vector<std::vector<int64_t>> seen(40, std::vector<int64_t>(9, -1));
  std::vector<BoundLaunch> launches;
  for (int64_t i = 0; i < 40; ++i) {
    BoundLaunch launch{.fn = RecordFirst, .tiles = 9};
    launch.buffers = {reinterpret_cast<uint8_t*>(seen[i].data())};
    launch.scalars = {i};
    launches.push_back(launch);
  }
  executor->Run(launches);
  for (int64_t i = 0; i < 40; ++i) EXPECT_THAT(seen[i], testing::Each(i));
}

#if defined(__x86_64__)
void RecordControl(uint8_t* const* buffers, const int64_t*, uint8_t*, int64_t tile, int64_t) {
  reinterpret_cast<uint32_t*>(buffers[0])[tile] = _mm_getcsr() & 0xffc0u;
  std::this_thread::sleep_for(std::chrono::microseconds(200));
}

TEST(ExecutorTest, TilesSeeDefaultFloatControlAndTheCallerKeepsItsOwn) {
  const std::unique_ptr<Executor> executor = MakeExecutor(2);
  std::vector<uint32_t> control(8, 0);
  BoundLaunch launch{.fn = RecordControl, .tiles = 8};
  launch.buffers = {reinterpret_cast<uint8_t*>(control.data())};
  const uint32_t before = _mm_getcsr();
  const uint32_t odd = 0x1f80u | 0x8040u | 0x6000u;  // FTZ, DAZ, round toward zero
  _mm_setcsr(odd);
  executor->Run({launch});
  const uint32_t after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after, odd);
  EXPECT_THAT(control, testing::Each(0x1f80u & 0xffc0u));
}
#endif

TEST(ExecutorTest, WaitsForWeightsThatHaveNotLanded) {
  const std::unique_ptr<Executor> executor = MakeExecutor(2);
  std::atomic<uint32_t> ready{0};
  uint64_t weight = 0, out[4] = {};
  BoundLaunch launch{.fn = SumAll, .tiles = 4, .ready = &ready};
  launch.buffers = {reinterpret_cast<uint8_t*>(&weight), reinterpret_cast<uint8_t*>(out)};
  launch.scalars = {1, 0};
  std::thread loader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    weight = 1000;
    ready.store(1, std::memory_order_release);
    ready.notify_all();
  });
  executor->Run({launch});
  loader.join();
  EXPECT_THAT(out, testing::ElementsAre(1000, 1001, 1002, 1003));
}

TEST(ExecutorTest, TimesEveryLaunch) {
  const std::unique_ptr<Executor> executor = MakeExecutor(2);
  BoundLaunch slow{.fn = SleepOnFirstTile, .tiles = 50};
  BoundLaunch skipped{.fn = SleepOnFirstTile, .tiles = 0};
  BoundLaunch single = slow;
  single.tiles = 1;
  int64_t ns[3] = {-1, -1, -1};
  executor->RunTimed({slow, skipped, single}, absl::MakeSpan(ns));
  EXPECT_GE(ns[0], 20'000'000);
  EXPECT_EQ(ns[1], 0);
  EXPECT_GE(ns[2], 20'000'000);
}

TEST(ExecutorTest, RunsFromAnyThreadAndShutsDownIdle) {
  for (int round = 0; round < 20; ++round) {
    const std::unique_ptr<Executor> executor = MakeExecutor(3, 0);
    std::vector<std::atomic<int>> counts(5);
    BoundLaunch launch{.fn = CountTile, .tiles = 5};
    launch.buffers = {reinterpret_cast<uint8_t*>(counts.data())};
    executor->Run({launch});
    std::thread([&] { executor->Run({launch, launch}); }).join();
    for (const std::atomic<int>& count : counts) EXPECT_EQ(count.load(), 3);
  }
}

void TouchScratch(uint8_t* const* buffers, const int64_t* scalars, uint8_t* scratch, int64_t tile,
                  int64_t) {
  for (int64_t i = 0; i < scalars[0]; i += 4096) scratch[i] = 1;
  scratch[scalars[0] - 1] = 2;
  reinterpret_cast<uint64_t*>(buffers[0])[tile] = reinterpret_cast<uintptr_t>(scratch) % 64;
}

TEST(ExecutorTest, ScratchIsAlignedAndAsLargeAsAsked) {
  const int64_t bytes = (3 << 20) + 5;
  const std::unique_ptr<Executor> executor = MakeExecutor(2, bytes);
  std::vector<uint64_t> misaligned(6, 1);
  BoundLaunch launch{.fn = TouchScratch, .tiles = 6};
  launch.buffers = {reinterpret_cast<uint8_t*>(misaligned.data())};
  launch.scalars = {bytes};
  executor->Run({launch});
  EXPECT_THAT(misaligned, testing::Each(0u));
}

TEST(ExecutorTest, RefusesOptionsOutOfRange) {
  EXPECT_EQ(Executor::Create({.workers = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Executor::Create({.workers = kWorkersMax + 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Executor::Create({.scratch_bytes = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ExecutorTest, PinnedWorkersStillFinish) {
  auto executor = Executor::Create({.workers = 2, .scratch_bytes = 64, .pin = true});
  ASSERT_TRUE(executor.ok());
  std::vector<std::atomic<int>> counts(30);
  BoundLaunch launch{.fn = CountTile, .tiles = 30};
  launch.buffers = {reinterpret_cast<uint8_t*>(counts.data())};
  (*executor)->Run({launch});
  for (const std::atomic<int>& count : counts) EXPECT_EQ(count.load(), 1);
}

}  // namespace
}  // namespace cuvil::runtime
