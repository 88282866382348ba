#include "runtime/pack.h"

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

// `header` bytes of f16 factors, then 16 bytes of nibbles (q4_0: d; q4_1: d, m).
template <int header>
void PackNibbles(const Cursors& rows, int64_t blocks, uint8_t* out) {
  for (int64_t b = 0; b < blocks; ++b, out += 256 + 16 * header) {
    for (int r = 0; r < kStripRows; ++r) {
      const uint8_t* src = rows[r].data + b * rows[r].stride;
      for (int j = 0; j < 4; ++j) std::memcpy(out + 64 * j + 4 * r, src + header + 4 * j, 4);
      for (int f = 0; f < header / 2; ++f) {
        std::memcpy(out + 256 + 32 * f + 2 * r, src + 2 * f, 2);
      }
    }
  }
}

void PackQ8_0(const Cursors& rows, int64_t blocks, uint8_t* out) {
  for (int64_t b = 0; b < blocks; ++b, out += 512 + 32) {
    for (int r = 0; r < kStripRows; ++r) {
      const uint8_t* src = rows[r].data + b * rows[r].stride;
      for (int j = 0; j < 8; ++j) {
        uint32_t dword;
        std::memcpy(&dword, src + 2 + 4 * j, 4);
        dword ^= 0x80808080u;  // q + 128 as u8
        std::memcpy(out + 64 * j + 4 * r, &dword, 4);
      }
      std::memcpy(out + 512 + 2 * r, src, 2);
    }
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
