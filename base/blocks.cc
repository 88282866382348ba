#include "base/blocks.h"

#include <cstring>
#include <string>

#include "base/checked.h"
#include "base/half.h"

namespace cuvil {
namespace {

// Values of the non-linear 4-bit code.
constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

uint16_t Load16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }

uint32_t Load32(const uint8_t* p) { return Load16(p) | (uint32_t{Load16(p + 2)} << 16); }

float LoadHalf(const uint8_t* p) { return F16ToF32(Load16(p)); }

// Legacy blocks of 32: byte i holds x[i] in its low and x[i + 16] in its high nibble.

void DecodeQ4_0(const uint8_t* b, float* out) {
  const float d = LoadHalf(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((b[2 + i] >> 4) - 8);
  }
}

void DecodeQ4_1(const uint8_t* b, float* out) {
  const float d = LoadHalf(b), m = LoadHalf(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(b[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(b[4 + i] >> 4) + m;
  }
}

// The fifth bit of x[i] is bit i of `high`.
int FiveBits(uint8_t nibble, uint32_t high, int i) {
  return nibble | static_cast<int>(((high >> i) & 1) << 4);
}

void DecodeQ5_0(const uint8_t* b, float* out) {
  const float d = LoadHalf(b);
  const uint32_t high = Load32(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(FiveBits(b[6 + i] & 15, high, i) - 16);
    out[i + 16] = d * static_cast<float>(FiveBits(b[6 + i] >> 4, high, i + 16) - 16);
  }
}

void DecodeQ5_1(const uint8_t* b, float* out) {
  const float d = LoadHalf(b), m = LoadHalf(b + 2);
  const uint32_t high = Load32(b + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(FiveBits(b[8 + i] & 15, high, i)) + m;
    out[i + 16] = d * static_cast<float>(FiveBits(b[8 + i] >> 4, high, i + 16)) + m;
  }
}

void DecodeQ8_0(const uint8_t* b, float* out) {
  const float d = LoadHalf(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

void DecodeIq4Nl(const uint8_t* b, float* out) {
  const float d = LoadHalf(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4NlValues[b[2 + i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4NlValues[b[2 + i] >> 4]);
  }
}

// K-quants, blocks of 256.

// scales[16], qs[64], d, dmin. Each half of 128 takes 32 bytes holding four groups of 32 at two
// bits.
void DecodeQ2K(const uint8_t* b, float* out) {
  const uint8_t* qs = b + 16;
  const float d = LoadHalf(b + 80), dmin = LoadHalf(b + 82);
  for (int x = 0; x < 256; ++x) {
    const uint8_t scale = b[x / 16];
    const int half = x / 128, group = x / 32 % 4;
    const int q = (qs[32 * half + x % 32] >> (2 * group)) & 3;
    const float dl = d * static_cast<float>(scale & 15), ml = dmin * static_cast<float>(scale >> 4);
    out[x] = dl * static_cast<float>(q) - ml;
  }
}

// hmask[32], qs[64], scales[12], d. A clear hmask bit subtracts 4; its bit advances per group
// of 32.
void DecodeQ3K(const uint8_t* b, float* out) {
  const uint8_t *qs = b + 32, *scales = b + 96;
  const float d = LoadHalf(b + 108);
  for (int x = 0; x < 256; ++x) {
    const int j = x / 16, half = x / 128, group = x / 32 % 4;
    const int low = (scales[j % 8] >> (4 * (j / 8))) & 15;
    const int high = (scales[8 + j % 4] >> (2 * (j / 4))) & 3;
    const float dl = d * static_cast<float>((low | (high << 4)) - 32);
    const int q = (qs[32 * half + x % 32] >> (2 * group)) & 3;
    const bool bit = (b[x % 32] >> (x / 32)) & 1;
    out[x] = dl * static_cast<float>(q - (bit ? 0 : 4));
  }
}

struct ScaleMin {
  int scale, min;
};

// The 6-bit pair j (0..7) of the twelve scale bytes of Q4_K and Q5_K.
ScaleMin UnpackScaleMin(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4)};
}

// d, dmin, scales[12], qs[128]. Each 64 takes 32 bytes: low nibbles first, then high.
void DecodeQ4K(const uint8_t* b, float* out) {
  const float d = LoadHalf(b), dmin = LoadHalf(b + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin pair = UnpackScaleMin(b + 4, j);
    const float dl = d * static_cast<float>(pair.scale), ml = dmin * static_cast<float>(pair.min);
    for (int i = 0; i < 32; ++i) {
      const int q = (b[16 + 32 * (j / 2) + i] >> (4 * (j % 2))) & 15;
      out[32 * j + i] = dl * static_cast<float>(q) - ml;
    }
  }
}

// d, dmin, scales[12], qh[32], qs[128]. As Q4_K; group j's fifth bits are bit j of qh.
void DecodeQ5K(const uint8_t* b, float* out) {
  const float d = LoadHalf(b), dmin = LoadHalf(b + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin pair = UnpackScaleMin(b + 4, j);
    const float dl = d * static_cast<float>(pair.scale), ml = dmin * static_cast<float>(pair.min);
    for (int i = 0; i < 32; ++i) {
      const int low = (b[48 + 32 * (j / 2) + i] >> (4 * (j % 2))) & 15;
      const int high = (b[16 + i] >> j) & 1;
      out[32 * j + i] = dl * static_cast<float>(low | (high << 4)) - ml;
    }
  }
}

// ql[128], qh[64], scales[16] signed, d. Per half of 128, group g of 32 takes its low nibbles from
// ql[l] or ql[l + 32] and its high pair from bits 2g of qh[l].
void DecodeQ6K(const uint8_t* b, float* out) {
  const float d = LoadHalf(b + 208);
  for (int x = 0; x < 256; ++x) {
    const int half = x / 128, group = x / 32 % 4, l = x % 32;
    const int low = (b[64 * half + 32 * (group % 2) + l] >> (4 * (group / 2))) & 15;
    const int high = (b[128 + 32 * half + l] >> (2 * group)) & 3;
    const float dl = d * static_cast<float>(static_cast<int8_t>(b[192 + x / 16]));
    out[x] = dl * static_cast<float>((low | (high << 4)) - 32);
  }
}

using BlockDecoder = void (*)(const uint8_t*, float*);

BlockDecoder DecoderOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return DecodeQ4_0;
    case DType::kQ4_1:
      return DecodeQ4_1;
    case DType::kQ5_0:
      return DecodeQ5_0;
    case DType::kQ5_1:
      return DecodeQ5_1;
    case DType::kQ8_0:
      return DecodeQ8_0;
    case DType::kQ2K:
      return DecodeQ2K;
    case DType::kQ3K:
      return DecodeQ3K;
    case DType::kQ4K:
      return DecodeQ4K;
    case DType::kQ5K:
      return DecodeQ5K;
    case DType::kQ6K:
      return DecodeQ6K;
    case DType::kIq4Nl:
      return DecodeIq4Nl;
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<size_t> RowBytes(DType dtype, int64_t n) {
  const DTypeInfo& info = Info(dtype);
  if (n < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a row of ", n, " elements is impossible; lengths start at 0"));
  }
  if (n % info.block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a ", std::string(info.name), " row of ", n,
                                                   " elements does not fill its blocks of ",
                                                   info.block, "; use a multiple of ", info.block));
  }
  size_t bytes;
  if (!CheckedMul<size_t>(static_cast<size_t>(n / info.block), info.bytes, &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("a ", std::string(info.name), " row of ", n,
                                                   " elements is too large to address"));
  }
  return bytes;
}

void DecodeRow(DType dtype, const uint8_t* src, int64_t n, float* dst) {
  const DTypeInfo& info = Info(dtype);
  CUVIL_CHECK(CanDecode(dtype) && n >= 0 && n % info.block == 0,
              absl::StrCat("DecodeRow of ", n, " elements of ", std::string(info.name)));
  if (const BlockDecoder decode = DecoderOf(dtype)) {
    for (int64_t i = 0; i < n / info.block; ++i) {
      decode(src + i * info.bytes, dst + i * info.block);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(dst + i, src + 4 * i, sizeof(float));
    } else {
      const uint16_t bits = Load16(src + 2 * i);
      dst[i] = dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
    }
  }
}

}  // namespace cuvil
