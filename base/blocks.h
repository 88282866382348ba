// Reference decoding of weight rows to f32: plain floats and GGML block types. This is the meaning
// of every packed type; a fast kernel is right when it agrees with DecodeRow. Pure functions, any
// thread.
//
// Blocks are little-endian. Each value is computed in f32 in the order the format's own reference
// uses (scale times quant, then the minimum), without contraction, so results match it bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/status.h"

namespace cuvil {

// True for the types DecodeRow accepts: F32, F16, BF16 and every block type.
constexpr bool CanDecode(DType dtype) {
  return IsBlock(dtype) || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16;
}

// Bytes of a row of `n` elements. InvalidArgument when n is negative or not a multiple of the
// block, or when the size does not fit size_t.
absl::StatusOr<size_t> RowBytes(DType dtype, int64_t n);

// Decodes a row of `n` elements (a multiple of the block) from `src`, which holds RowBytes(dtype,
// n) bytes at any alignment, into dst[0..n). CanDecode(dtype) must hold.
void DecodeRow(DType dtype, const uint8_t* src, int64_t n, float* dst);

}  // namespace cuvil
