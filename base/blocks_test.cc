#include "base/blocks.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "gtest/gtest.h"

namespace cuvil {
namespace {

std::vector<float> Decode(DType dtype, const std::vector<uint8_t>& bytes) {
  const DTypeInfo& info = Info(dtype);
  std::vector<float> out(bytes.size() / info.bytes * info.block);
  DecodeRow(dtype, bytes.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Scales below: f16 0x3800 = 0.5, 0x3c00 = 1, 0x4000 = 2, 0xbc00 = -1.

TEST(Blocks, Q4_0ByHand) {
  std::vector<uint8_t> block(18, 0x88);  // every quant 8, which means zero
  block[0] = 0x00, block[1] = 0x38;
  block[2] = 0xf0;  // x[0] = 0 - 8, x[16] = 15 - 8
  const std::vector<float> x = Decode(DType::kQ4_0, block);
  EXPECT_EQ(x[0], -4.0f);
  EXPECT_EQ(x[16], 3.5f);
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(x[31], 0.0f);
}

TEST(Blocks, Q4_1ByHand) {
  std::vector<uint8_t> block(20, 0);
  block[1] = 0x40, block[3] = 0xbc;
  block[4 + 15] = 0x73;
  const std::vector<float> x = Decode(DType::kQ4_1, block);
  EXPECT_EQ(x[15], 2.0f * 3 - 1);
  EXPECT_EQ(x[31], 2.0f * 7 - 1);
  EXPECT_EQ(x[0], -1.0f);
}

TEST(Blocks, Q5ByHand) {
  std::vector<uint8_t> block(22, 0);
  block[1] = 0x3c;
  block[2] = 0x01, block[5] = 0x80;  // fifth bits of x[0] and x[31]
  block[6] = 0x02, block[6 + 15] = 0x50;
  std::vector<float> x = Decode(DType::kQ5_0, block);
  EXPECT_EQ(x[0], 18.0f - 16);
  EXPECT_EQ(x[31], 21.0f - 16);
  EXPECT_EQ(x[1], -16.0f);
  block.insert(block.begin() + 2, {0x00, 0x38});  // m = 0.5
  x = Decode(DType::kQ5_1, block);
  EXPECT_EQ(x[0], 18.5f);
  EXPECT_EQ(x[31], 21.5f);
  EXPECT_EQ(x[1], 0.5f);
}

TEST(Blocks, Q8_0AndIq4NlByHand) {
  std::vector<uint8_t> q8(34, 0);
  q8[1] = 0x38, q8[2] = 0x80, q8[33] = 0x7f;
  std::vector<float> x = Decode(DType::kQ8_0, q8);
  EXPECT_EQ(x[0], -64.0f);
  EXPECT_EQ(x[31], 63.5f);
  std::vector<uint8_t> iq4(18, 0);
  iq4[1] = 0x3c, iq4[2] = 0xf8;
  x = Decode(DType::kIq4Nl, iq4);
  EXPECT_EQ(x[0], 1.0f);
  EXPECT_EQ(x[16], 113.0f);
  EXPECT_EQ(x[1], -127.0f);
}

TEST(Blocks, Q2KByHand) {
  std::vector<uint8_t> block(84, 0);
  block[81] = 0x3c, block[83] = 0x38;  // d = 1, dmin = 0.5
  block[0] = 0x23;                     // x[0..16): scale 3, min 2
  block[9] = 0x05;                     // x[144..160): scale 5, min 0
  block[16] = 0x02;                    // x[0] = 2
  block[16 + 32 + 16] = 0x0c;          // second half, group 1: x[128 + 32 + 16] = 3
  block[16 + 32 + 31] = 0x01;          // second half, group 0: x[128 + 31] = 1
  const std::vector<float> x = Decode(DType::kQ2K, block);
  EXPECT_EQ(x[0], 3.0f * 2 - 1);
  EXPECT_EQ(x[1], -1.0f);
  EXPECT_EQ(x[159], 5.0f);
  EXPECT_EQ(x[176], 0.0f);  // its scale is 0
}

TEST(Blocks, Q3KByHand) {
  std::vector<uint8_t> block(110, 0);
  block[109] = 0x3c;      // d = 1
  block[96] = 0xf1;       // scale 0: low 1; scale 8: low 15
  block[96 + 8] = 0x20;   // scale 8: high 2 -> 47 - 32 = 15; scale 0: high 0 -> 1 - 32
  block[32 + 32] = 0x03;  // x[128] = 3
  block[0] = 0x10;        // hmask bit 4 of x[128]: no subtraction
  const std::vector<float> x = Decode(DType::kQ3K, block);
  EXPECT_EQ(x[128], 15.0f * 3);
  EXPECT_EQ(x[129], 15.0f * -4);
  EXPECT_EQ(x[0], -31.0f * -4);
}

TEST(Blocks, Q4KAndQ5KByHand) {
  std::vector<uint8_t> q4(144, 0);
  q4[1] = 0x3c, q4[3] = 0x38;  // d = 1, dmin = 0.5
  q4[4] = 0x41;                // pair 0: scale 1; high bits of pair 4's scale: 1
  q4[4 + 8] = 0x42;            // pair 4: scale 2 | 1 << 4, min 4 | ...
  q4[4 + 4] = 0x80;            // ... 2 << 4
  q4[16 + 64] = 0x09;          // x[128] = 9
  std::vector<float> x = Decode(DType::kQ4K, q4);
  EXPECT_EQ(x[128], 18.0f * 9 - 0.5f * 36);
  std::vector<uint8_t> q5 = q4;
  q5.insert(q5.begin() + 16, 32, 0);
  q5[16] = 0x10;  // fifth bit of x[128]: group 4, lane 0
  x = Decode(DType::kQ5K, q5);
  EXPECT_EQ(x[128], 18.0f * 25 - 0.5f * 36);
  EXPECT_EQ(x[129], -0.5f * 36);
}

TEST(Blocks, Q6KByHand) {
  std::vector<uint8_t> block(210, 0);
  block[209] = 0x3c;
  block[192 + 8 + 6] = 0xfe;  // x[128 + 96 ..): scale -2
  block[64 + 32] = 0xa0;      // its ql: high nibble of byte 32 of the second half
  block[128 + 32] = 0xc0;     // its high pair: 3
  const std::vector<float> x = Decode(DType::kQ6K, block);
  EXPECT_EQ(x[224], -2.0f * (0x3a - 32));
  EXPECT_EQ(x[225], -2.0f * -32);
}

TEST(Blocks, DecodesBf16AndUnalignedF32) {
  EXPECT_EQ(Decode(DType::kBf16, {0xc0, 0x3f})[0], 1.5f);
  const uint8_t bytes[5] = {0, 0, 0, 0xc0, 0x3f};
  float out;
  DecodeRow(DType::kF32, bytes + 1, 1, &out);
  EXPECT_EQ(out, 1.5f);
}

// Bit for bit: the goldens come from gguf-py on seeded bytes, random f16 scales included.
TEST(Blocks, MatchesGoldens) {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  const std::string path =
      absl::StrCat(root == nullptr ? "." : root, "/tests/data/gguf/blocks.json");
  const absl::StatusOr<std::string> text = ReadFile(path, 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const absl::StatusOr<Json> goldens = ParseJson(*text);
  ASSERT_TRUE(goldens.ok()) << goldens.status();
  int types = 0;
  for (const auto& [name, golden] : goldens->items()) {
    const std::optional<DType> dtype = ParseDType(name);
    ASSERT_TRUE(dtype.has_value() && CanDecode(*dtype)) << name;
    const std::vector<float> got = Decode(*dtype, FromHex(golden["bytes"].get<std::string>()));
    const std::string want = golden["f32"].get<std::string>();
    ASSERT_EQ(want.size(), 8 * got.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      const float w = std::bit_cast<float>(
          static_cast<uint32_t>(std::stoul(want.substr(8 * i, 8), nullptr, 16)));
      if (std::isnan(w)) {
        EXPECT_TRUE(std::isnan(got[i])) << name << " " << i;  // payloads are unspecified
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(w)) << name << " " << i;
      }
    }
    ++types;
  }
  EXPECT_EQ(types, 14);
}

TEST(Blocks, RowBytesChecksItsInput) {
  EXPECT_EQ(*RowBytes(DType::kQ4_1, 64), 40u);
  EXPECT_EQ(*RowBytes(DType::kF16, 3), 6u);
  EXPECT_EQ(*RowBytes(DType::kQ6K, 0), 0u);
  EXPECT_FALSE(RowBytes(DType::kQ4K, 128).ok());
  EXPECT_FALSE(RowBytes(DType::kF32, -1).ok());
  EXPECT_FALSE(RowBytes(DType::kF32, std::numeric_limits<int64_t>::max()).ok());
}

}  // namespace
}  // namespace cuvil
