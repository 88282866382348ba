// Packed layouts that code and data agree on: weights in strips of 16 output rows, activations in
// row records. The compiler emits kernels for them, the weights store packs files into them.
//
//   layout   one strip (16 rows r) x 32 k                                      bytes
//   q4_0/1   4 x [r][4 bytes]: dword j of row r = its packed bytes 4j..4j+3    256 + 16 f16 d (+ 16
//   f16 m) q8_0     8 x [r][4 bytes]: dword j = w[4j..4j+3] + 128 as u8               512 + 16 f16
//   d f32/f16/bf16  [k][r]                                                       32 * 16 * size
// A packed matrix is its strips one after another, each k/32 blocks.
//
// Row records, kept at AlignUp(bytes, 64):
//   f32      k floats
//   a8b32    k s8, then k/32 f32 scales d, then k/32 f32 d * sum(q)   (x ~ d q, |q| <= 127)
#pragma once

#include <cstdint>

#include "base/checked.h"

namespace cuvil {

enum class WeightLayout : uint8_t { kQ4_0, kQ4_1, kQ8_0, kF32, kF16, kBf16 };
enum class ActFormat : uint8_t { kF32, kA8B32 };

inline constexpr int kStripRows = 16;
inline constexpr int kBlockK = 32;
// Part of program keys: bump when any layout above changes.
inline constexpr int kLayoutVersion = 1;

constexpr int64_t WeightBlockBytes(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kQ4_0:
      return 256 + 32;
    case WeightLayout::kQ4_1:
      return 256 + 64;
    case WeightLayout::kQ8_0:
      return 512 + 32;
    case WeightLayout::kF32:
      return int64_t{kBlockK} * kStripRows * 4;
    case WeightLayout::kF16:
    case WeightLayout::kBf16:
      return int64_t{kBlockK} * kStripRows * 2;
  }
  return 0;
}

constexpr int64_t WeightStripBytes(WeightLayout layout, int64_t k) {
  return WeightBlockBytes(layout) * (k / kBlockK);
}

constexpr int64_t ActRowBytes(ActFormat format, int64_t k) {
  return AlignUp<int64_t>(format == ActFormat::kF32 ? k * 4 : k + k / kBlockK * 8, 64);
}

}  // namespace cuvil
