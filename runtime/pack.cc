#include "runtime/pack.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/blocks.h"

namespace cuvil::runtime {
namespace {

constexpr int kBlockMax = 256;  // elements of the largest source block

// A row walked block by block. A row of zeros stays on one zero block.
struct RowCursor {
  const uint8_t* data;
  int64_t stride;
};
using Cursors = std::array<RowCursor, kStripRows>;

// A block whose values are all +0 in every layout: for q4_0 the nibble 8 stands for 0.
constexpr std::array<uint8_t, 18> kZeroQ4_0 = [] {
  std::array<uint8_t, 18> block{};
  for (size_t i = 2; i < block.size(); ++i) block[i] = 0x88;
  return block;
}();
constexpr std::array<uint8_t, 128> kZeros{};

Cursors MakeCursors(const uint8_t* const (&rows)[kStripRows], int64_t stride, const uint8_t* zero) {
  Cursors cursors;
  for (int r = 0; r < kStripRows; ++r) {
    cursors[r] = rows[r] != nullptr ? RowCursor{rows[r], stride} : RowCursor{zero, 0};
  }
  return cursors;
}

// Dword j of four rows becomes 16 bytes at out + 64 * j, j = 0..3.
void TransposeDwords(__m128i r0, __m128i r1, __m128i r2, __m128i r3, uint8_t* out) {
  const __m128i low01 = _mm_unpacklo_epi32(r0, r1), low23 = _mm_unpacklo_epi32(r2, r3);
  const __m128i high01 = _mm_unpackhi_epi32(r0, r1), high23 = _mm_unpackhi_epi32(r2, r3);
  const auto store = [out](int j, __m128i dwords) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 64 * j), dwords);
  };
  store(0, _mm_unpacklo_epi64(low01, low23));
  store(1, _mm_unpackhi_epi64(low01, low23));
  store(2, _mm_unpacklo_epi64(high01, high23));
  store(3, _mm_unpackhi_epi64(high01, high23));
}

__m128i Load16(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Pairs (d, m) at the start of 16 blocks become 16 d, then 16 m.
void SplitFactors(const uint8_t* const (&src)[kStripRows], uint8_t* out) {
  for (int r = 0; r < kStripRows; r += 8) {
    uint32_t pairs[8];
    for (int i = 0; i < 8; ++i) std::memcpy(&pairs[i], src[r + i], 4);
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + 4));
    // Sign-extended halves survive the saturating pack as they are.
    const auto low = [](__m128i v) { return _mm_srai_epi32(_mm_slli_epi32(v, 16), 16); };
    const auto high = [](__m128i v) { return _mm_srai_epi32(v, 16); };
    const auto store = [&](int at, __m128i v) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at + 2 * r), v);
    };
    store(0, _mm_packs_epi32(low(a), low(b)));
    store(32, _mm_packs_epi32(high(a), high(b)));
  }
}

// `header` bytes of f16 factors, then 16 bytes of nibbles (q4_0: d; q4_1: d, m).
template <int header>
void PackNibbles(const Cursors& rows, int64_t blocks, uint8_t* out) {
  for (int64_t b = 0; b < blocks; ++b, out += 256 + 16 * header) {
    const uint8_t* src[kStripRows];
    for (int r = 0; r < kStripRows; ++r) src[r] = rows[r].data + b * rows[r].stride;
    for (int r = 0; r < kStripRows; r += 4) {
      TransposeDwords(Load16(src[r] + header), Load16(src[r + 1] + header),
                      Load16(src[r + 2] + header), Load16(src[r + 3] + header), out + 4 * r);
    }
    if constexpr (header == 4) {
      SplitFactors(src, out + 256);
    } else {
      for (int r = 0; r < kStripRows; ++r) std::memcpy(out + 256 + 2 * r, src[r], 2);
    }
  }
}

void PackQ8_0(const Cursors& rows, int64_t blocks, uint8_t* out) {
  const __m128i flip = _mm_set1_epi8(static_cast<char>(0x80));  // q + 128 as u8
  for (int64_t b = 0; b < blocks; ++b, out += 512 + 32) {
    const uint8_t* src[kStripRows];
    for (int r = 0; r < kStripRows; ++r) src[r] = rows[r].data + b * rows[r].stride;
    for (int r = 0; r < kStripRows; r += 4) {
      for (int half = 0; half < 2; ++half) {
        const auto load = [&](int row) {
          return _mm_xor_si128(Load16(src[row] + 2 + 16 * half), flip);
        };
        TransposeDwords(load(r), load(r + 1), load(r + 2), load(r + 3), out + 256 * half + 4 * r);
      }
    }
    for (int r = 0; r < kStripRows; ++r) std::memcpy(out + 512 + 2 * r, src[r], 2);
  }
}

template <typename Element>
void PackElements(const Cursors& rows, int64_t blocks, uint8_t* out) {
  constexpr int64_t size = sizeof(Element);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int i = 0; i < kBlockK; ++i, out += kStripRows * size) {
      for (int r = 0; r < kStripRows; ++r) {
        std::memcpy(out + r * size, rows[r].data + b * rows[r].stride + i * size, size);
      }
    }
  }
}

void PackDecoded(DType source, int64_t k, const uint8_t* const (&rows)[kStripRows], uint8_t* out) {
  float decoded[kStripRows][kBlockMax];
  const DTypeInfo& info = Info(source);
  const int64_t step = std::max(info.block, kBlockK);
  const int64_t step_bytes = step / info.block * info.bytes;
  const uint8_t* decoded_rows[kStripRows];
  for (int r = 0; r < kStripRows; ++r) {
    decoded_rows[r] = rows[r] != nullptr ? reinterpret_cast<const uint8_t*>(decoded[r]) : nullptr;
  }
  const Cursors cursors = MakeCursors(decoded_rows, kBlockK * sizeof(float), kZeros.data());
  for (int64_t i = 0; i < k / step; ++i) {
    for (int r = 0; r < kStripRows; ++r) {
      if (rows[r] != nullptr) DecodeRow(source, rows[r] + i * step_bytes, step, decoded[r]);
    }
    PackElements<uint32_t>(cursors, step / kBlockK, out);
    out += step * kStripRows * sizeof(float);
  }
}

DType SameType(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kQ4_0:
      return DType::kQ4_0;
    case WeightLayout::kQ4_1:
      return DType::kQ4_1;
    case WeightLayout::kQ8_0:
      return DType::kQ8_0;
    case WeightLayout::kF32:
      return DType::kF32;
    case WeightLayout::kF16:
      return DType::kF16;
    case WeightLayout::kBf16:
      return DType::kBf16;
  }
  return DType::kF32;
}

}  // namespace

std::string_view Name(WeightLayout layout) { return Info(SameType(layout)).name; }

bool CanPack(DType source, WeightLayout layout) {
  return source == SameType(layout) || (layout == WeightLayout::kF32 && CanDecode(source));
}

void PackStrip(DType source, WeightLayout layout, int64_t k,
               const uint8_t* const (&rows)[kStripRows], uint8_t* out) {
  CUVIL_DCHECK_THAT(CanPack(source, layout) && k % kBlockK == 0 && k % Info(source).block == 0,
                    "PackStrip of an unsupported pair");
  const int64_t blocks = k / kBlockK;
  // Bytes of 32 elements of the source.
  const int64_t stride =
      int64_t{kBlockK} / std::min(Info(source).block, kBlockK) * Info(source).bytes;
  switch (layout) {
    case WeightLayout::kQ4_0:
      return PackNibbles<2>(MakeCursors(rows, stride, kZeroQ4_0.data()), blocks, out);
    case WeightLayout::kQ4_1:
      return PackNibbles<4>(MakeCursors(rows, stride, kZeros.data()), blocks, out);
    case WeightLayout::kQ8_0:
      return PackQ8_0(MakeCursors(rows, stride, kZeros.data()), blocks, out);
    case WeightLayout::kF16:
    case WeightLayout::kBf16:
      return PackElements<uint16_t>(MakeCursors(rows, stride, kZeros.data()), blocks, out);
    case WeightLayout::kF32:
      if (source != DType::kF32) return PackDecoded(source, k, rows, out);
      return PackElements<uint32_t>(MakeCursors(rows, stride, kZeros.data()), blocks, out);
  }
}

}  // namespace cuvil::runtime
