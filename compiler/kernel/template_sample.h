// The sampling template: one pass over a row of logits gives the statistics of each block of
// columns, from which the host picks a token in time proportional to blocks and candidates, not to
// the vocabulary. Nothing in it depends on a model: one kernel serves every vocabulary.
//
// Numerics: column c adds to partial c % 64 of its block, and the 64 partials fold pairwise (i with
// i + 32, then + 16, ...). So a result depends neither on how many tiles or rows there are nor on
// the width of the registers.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"

namespace cuvil::kernel {

inline constexpr int kSampleStep = 64;    // columns are a multiple of this
inline constexpr int kSampleBlock = 256;  // columns a statistic covers; the last may be shorter
inline constexpr int kSampleBlocksPerTile = 16;  // 16 KB of logits, about 1 us of work
inline constexpr int64_t kSampleRecordBytes = 16;

// One record a block, as the kernel stores it.
struct SampleRecord {
  float max = 0;        // largest column that is not NaN; -inf when there is none
  int32_t has_nan = 0;  // 1 when a column is NaN; the rest then means nothing
  // Sums of exp((x - max) * scale0) and exp((x - max) * scale1) over the block, when asked for.
  // Terms below e^-87.3 count as e^-87.3.
  float sum0 = 0, sum1 = 0;
};
static_assert(sizeof(SampleRecord) == kSampleRecordBytes);

// Launch with ceil(columns / (kSampleBlock * kSampleBlocksPerTile)) tiles.
// Buffers: x (f32 row; columns that take no part hold -inf), stats (written, SampleRecord per
// block). Scalars: columns; sums (0, 1 or 2: how many to compute); scale0, scale1 (bits of an f32 >
// 0).
Kernel BuildSampleBlocks(const std::string& name, const Machine& machine);

}  // namespace cuvil::kernel
