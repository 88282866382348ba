#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "base/build_id.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/json.h"
#include "gtest/gtest.h"

namespace cuvil {
namespace {

TEST(Half, RoundTripsEveryPattern) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = F16ToF32(h);
    if (std::isnan(f)) continue;
    EXPECT_EQ(F32ToF16(f), h);
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(F32ToF16(1.0f), 0x3c00);
  EXPECT_EQ(F32ToF16(65504.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), 0x3c00);      // tie to even
  EXPECT_EQ(F32ToF16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie to even, upward
  EXPECT_EQ(F32ToF16(0x1p-24f), 0x0001);             // smallest subnormal
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);             // tie to zero
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-8f), 0x3f80);
}

TEST(Checked, RefusesOverflow) {
  uint64_t out;
  EXPECT_FALSE(CheckedMul<uint64_t>(1ull << 63, 2, &out));
  EXPECT_FALSE(CheckedAdd<uint64_t>(~0ull, 1, &out));
  EXPECT_FALSE(CheckedAlignUp(~0ull, 32, &out));
  EXPECT_FALSE(CheckedAlignUp(1, 0, &out));
  ASSERT_TRUE(CheckedAlignUp(33, 32, &out));
  EXPECT_EQ(out, 64u);
}

TEST(Json, RefusesDepthDuplicatesAndGarbage) {
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(65, '[') + std::string(65, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(1000000, '[')).ok());
  EXPECT_FALSE(ParseJson(R"({"a":1,"a":2})").ok());
  EXPECT_FALSE(ParseJson("{\"a\":NaN}").ok());
  EXPECT_FALSE(ParseJson("1 2").ok());
  EXPECT_FALSE(ParseJson("").ok());
  ASSERT_TRUE(ParseJson(R"({"a":{"b":1},"c":{"b":2}})").ok());
}

TEST(Json, WritesInvalidUtf8AsReplacement) {
  EXPECT_EQ(WriteJson(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

TEST(Hash, KnownVectors) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Xxh128Hex({}), "99aa06d3014798d86001c324468d497f");
}

TEST(File, OneSentencePerRefusal) {
  const std::string dir = testing::TempDir();
  EXPECT_EQ(MappedFile::Open(dir).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::Open(dir + "/absent").status().code(), absl::StatusCode::kNotFound);
  const std::string path = dir + "/cuvil_base_test_file";
  std::filesystem::remove(path);
  ASSERT_TRUE(WriteFileAtomic(path, {}).ok());
  EXPECT_EQ(MappedFile::Open(path).status().code(), absl::StatusCode::kInvalidArgument);
  const uint8_t bytes[] = {1, 2, 3};
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->bytes().size(), 3u);
  EXPECT_EQ(*ReadFile(path, 3), std::string("\1\2\3"));
  EXPECT_FALSE(ReadFile(path, 2).ok());
  std::filesystem::remove(path);
  EXPECT_FALSE(WriteFileAtomic(dir + "/no/such/dir/x", bytes).ok());
  // As root a rename would put a file in a device's place.
  const std::string pipe = dir + "/cuvil_base_test_pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(WriteFileAtomic(pipe, bytes).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::remove(pipe);
}

TEST(BuildId, IsTheLinkersSha1) {
  EXPECT_EQ(BuildId().size(), 40u);
  EXPECT_EQ(BuildId().find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(Cpu, CoresAreAtLeastOne) {
  EXPECT_GE(UsableCores(), 1);
  EXPECT_FALSE(AcquireCpuFeatures().vendor.empty());
}

}  // namespace
}  // namespace cuvil
