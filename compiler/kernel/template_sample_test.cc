#include "compiler/kernel/template_sample.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/checked.h"
#include "compiler/kernel/interpreter.h"
#include "compiler/kernel/verify.h"
#include "gtest/gtest.h"

namespace cuvil::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<SampleRecord> Interpret(const Machine& machine, std::vector<float> x, int sums,
                                    float scale0, float scale1, uint64_t seed = 0) {
  const Kernel k = BuildSampleBlocks("sample", machine);
  EXPECT_EQ(Verify(k), absl::OkStatus());
  const int64_t columns = static_cast<int64_t>(x.size());
  std::vector<SampleRecord> stats(CeilDiv<int64_t>(columns, kSampleBlock));
  const Launch launch{
      .buffers = {{reinterpret_cast<uint8_t*>(x.data()), x.size() * 4},
                  {reinterpret_cast<uint8_t*>(stats.data()), stats.size() * kSampleRecordBytes}},
      .scalars = {columns, sums, std::bit_cast<int32_t>(scale0), std::bit_cast<int32_t>(scale1)},
      .tiles = CeilDiv<int64_t>(columns, kSampleBlock * kSampleBlocksPerTile),
      .seed = seed};
  EXPECT_EQ(Run(k, launch), absl::OkStatus());
  return stats;
}

std::vector<float> RandomRow(int64_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> x(columns);
  for (float& v : x) v = normal(random);
  return x;
}

// 2e-7 of the exponential, twice the rounding of its argument (up to 60 in magnitude where a term
// matters less and less), and 4 additions per partial plus 6 folds in f32.
constexpr double kSumTolerance = 2e-6;

TEST(SampleBlocks, MatchesDoubleReference) {
  for (const int64_t columns : {64, 192, 256, 320, 4096, 4160, 8704}) {
    const std::vector<float> x = RandomRow(columns, columns);
    const std::vector<SampleRecord> stats = Interpret({.lanes = 16}, x, 2, 1.0f, 1.5f);
    for (size_t block = 0; block < stats.size(); ++block) {
      const size_t begin = block * kSampleBlock;
      const size_t end = std::min<size_t>(begin + kSampleBlock, columns);
      float max = -kInf;
      for (size_t i = begin; i < end; ++i) max = std::max(max, x[i]);
      double sum0 = 0, sum1 = 0;
      for (size_t i = begin; i < end; ++i) {
        sum0 += std::exp(static_cast<double>(x[i]) - max);
        sum1 += std::exp((static_cast<double>(x[i]) - max) * 1.5);
      }
      EXPECT_EQ(stats[block].max, max);
      EXPECT_EQ(stats[block].has_nan, 0);
      EXPECT_NEAR(stats[block].sum0, sum0, kSumTolerance * sum0);
      EXPECT_NEAR(stats[block].sum1, sum1, kSumTolerance * sum1);
    }
  }
}

TEST(SampleBlocks, SameBitsOnEveryWidthAndTileOrder) {
  const std::vector<float> x = RandomRow(4096 + 320, 3);
  const auto wide = Interpret({.lanes = 16}, x, 2, 1.0f, 0.7f, 1);
  const auto narrow = Interpret({.lanes = 8, .registers = 16}, x, 2, 1.0f, 0.7f, 2);
  ASSERT_EQ(wide.size(), narrow.size());
  EXPECT_EQ(std::memcmp(wide.data(), narrow.data(), wide.size() * kSampleRecordBytes), 0);
}

TEST(SampleBlocks, ABlockDoesNotDependOnTheOthers) {
  const std::vector<float> x = RandomRow(2048, 4);
  const auto all = Interpret({.lanes = 16}, x, 1, 1.0f, 1.0f);
  const auto one = Interpret({.lanes = 16}, {x.begin() + 512, x.begin() + 768}, 1, 1.0f, 1.0f);
  EXPECT_EQ(std::memcmp(&all[2], &one[0], kSampleRecordBytes), 0);
}

TEST(SampleBlocks, NanIsReportedWhereverItIs) {
  for (const size_t at : {0u, 63u, 64u, 255u, 256u, 300u}) {
    std::vector<float> x = RandomRow(320, 5);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    const auto stats = Interpret({.lanes = 16}, x, 1, 1.0f, 1.0f);
    EXPECT_EQ(stats[at / kSampleBlock].has_nan, 1) << at;
    EXPECT_EQ(stats[1 - at / kSampleBlock].has_nan, 0) << at;
    EXPECT_FALSE(std::isnan(stats[at / kSampleBlock].max));
  }
}

TEST(SampleBlocks, InfinitiesAndUnusedSums) {
  std::vector<float> x(512, -kInf);
  x[3] = -2;
  const auto stats = Interpret({.lanes = 16}, x, 1, 1.0f, 1.0f);
  EXPECT_EQ(stats[0].max, -2);
  EXPECT_FLOAT_EQ(stats[0].sum0, 1);
  EXPECT_EQ(stats[1].max, -kInf);
  EXPECT_TRUE(std::isfinite(stats[1].sum0));
  EXPECT_EQ(stats[0].sum1, 0) << "not asked for";
  EXPECT_EQ(Interpret({.lanes = 16}, x, 0, 1.0f, 1.0f)[0].sum0, 0) << "not asked for";
}

}  // namespace
}  // namespace cuvil::kernel
