// The attention template over paged keys and values, for decode and prefill alike.
//
// Pages hold `page_tokens` (32) tokens of every layer; inside a page, at the launch's "layer"
// offset, each KV head has
//   K: page_tokens/16 sub-tiles of [head_dim][16 tokens]      V: [page_tokens][head_dim]
// so scores of 16 tokens come from one vector a dimension and no horizontal sums exist.
//
// A work item (10 s64) is one tile: {row, rows (1 or row_block), table, position of the first row,
// kv head, first key block, end key block, slot, window, sinks}. `table` is the byte offset in
// "tables" of the sequence's page list (s64 byte offsets of pages). Key blocks are kKeyBlock tokens
// at fixed absolute positions. Each block is reduced to (max, sum, weighted values) and folded into
// the running result in order; with slot >= 0 an item's results go to "partial", and the merge
// kernel folds them by the same formula. So a row's bits depend neither on its neighbours nor on
// how the work was cut.
//
// Row i sees keys at positions p <= i with p < sinks or p > i - window. Window and sinks are the
// launch's (of the layer) where its window is the smaller one, else the item's (of the sequence).
// Key blocks that no row of an item sees are not read, and of a block that is seen in part every
// page must be readable: invisible keys are masked, not skipped.
#pragma once

#include <string>

#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"

namespace cuvil::kernel {

inline constexpr int kKeyBlock = 256;
inline constexpr int kWorkItemFields = 10;

struct AttentionParams {
  std::string name;
  int n_head = 0, n_head_kv = 0, head_dim = 0;
  Scalar kv = Scalar::kF32;
  int page_tokens = 32;
  int row_block = 1;  // rows an item may have (besides 1)
  ActFormat out_act = ActFormat::kF32;
};

// Rows an item should cover so that queries fill the registers.
int AttentionRowBlock(const AttentionParams& params, const Machine& machine);

// Bytes of one slot of "partial": per query of a KV head's group: max, sum, head_dim values.
int64_t AttentionSlotBytes(const AttentionParams& params);

// Bytes of one KV head in a page.
inline int64_t KvHeadBytes(int page_tokens, int head_dim, Scalar kv) {
  return int64_t{2} * page_tokens * head_dim * ScalarBytes(kv);
}

// Buffers: q (f32 rows, already scaled), kv, tables, items, out (row records of n_head*head_dim,
// written), partial (written). Scalars: layer, window, sinks. Grid: items.
Kernel BuildAttention(const AttentionParams& params, const Machine& machine);

// Folds partial results. A merge item (4 s64): {row, kv head, first slot, slots}.
// Buffers: partial, items, out (written). Grid: merge items.
Kernel BuildAttentionMerge(const AttentionParams& params, const Machine& machine);

}  // namespace cuvil::kernel
