// The linear template: y[rows, n] = act[rows, k] * W[n, k]^T for packed weights, with a prologue
// that makes the activations and an epilogue that consumes the outputs. One kernel serves any
// number of rows up to rows_max; per row the arithmetic and its order do not depend on how many
// rows there are.
//
// Weights are strips of 16 output rows and activations row records, both as runtime/layout.h lays
// them out; a tile is `strips` consecutive strips, whose outputs [8][strips * 16] f32 pass through
// worker scratch to the epilogue.
//
// Numerics: a8b32 with block weights takes an exact integer dot per block and accumulates
// acc = fma(float(dot), dw * da, acc); acc = fma(mw, d*sum, acc) in block order. f32 activations
// accumulate each block of 32 on its own, then add it to the row's sum.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernel/kir.h"
#include "runtime/layout.h"

namespace cuvil::kernel {

// What the machine gives a template; filled from the emitter's target.
struct Machine {
  int lanes = 16;      // f32 lanes of one register
  int registers = 32;  // vector registers
};

enum class Prologue : uint8_t {
  kActs,      // buffer "act" holds row records already
  kRows,      // buffer "x" holds f32 rows; converted by each worker
  kNormRows,  // the same after RMS norm with weights "norm"
};

enum class Epilogue : uint8_t {
  kStore,     // out[row][n] = y
  kResidual,  // out[row][n] += y
  kGated,     // tile = 32 gate, 32 up rows; out act record block = activation(gate) * up
  kHeads,     // tile = one head: q to "q" (rotated, scaled), k and v to their pages (v saturates)
};

enum class Activation : uint8_t { kSilu, kGeluTanh };
enum class RopeKind : uint8_t { kNone, kAdjacent, kHalf };

// Parameters of the heads epilogue. Pages: see template_attention.h.
struct HeadsParams {
  int n_head = 0, n_head_kv = 0, head_dim = 0;
  RopeKind rope = RopeKind::kAdjacent;
  int rope_dim = 0;
  double q_scale = 1;
  bool qk_norm = false;
  double qk_norm_eps = 0;
  Scalar kv = Scalar::kF32;
  int page_tokens = 32;
};

struct LinearParams {
  std::string name;
  int64_t k = 0;  // multiple of 32
  // Row stride of "out" in elements (store, residual); k of the record (gated).
  int64_t n_stride = 0;
  int strips = 4;    // strips a tile
  int rows_max = 8;  // with a converting prologue: rows the scratch holds
  WeightLayout weights = WeightLayout::kF32;
  ActFormat act = ActFormat::kF32;
  Prologue prologue = Prologue::kActs;
  Epilogue epilogue = Epilogue::kStore;
  bool row_indices = false;  // prologue reads x row number rows[i] (s32) instead of i
  bool bias = false;         // buffer "bias": f32 per output row, added before the epilogue
  bool prefetch = false;     // scalar "prefetch": bytes ahead
  double norm_eps = 0;
  Activation activation = Activation::kSilu;
  ActFormat out_act = ActFormat::kF32;  // gated: format of "out"
  HeadsParams heads;
};

// Buffers in order: w; then "act" or "x" ("norm" follows for kNormRows; "rows" with row_indices);
// "bias" if any; then by epilogue: out | q, kv(written), row_kv (s64 pairs: page byte offset,
// slot), rope (f32 per row: rope_dim cosines then rope_dim signed sines), q_norm, k_norm (with
// qk_norm). Scalars: rows; "layer" byte offset into a page (heads); prefetch (if asked).
Kernel BuildLinear(const LinearParams& params, const Machine& machine);

// Row records from f32 rows, one row a tile: the prologue as a launch of its own for many rows.
// Buffers: x, [norm], [rows], out. Scalars: none.
struct RowsToActsParams {
  std::string name;
  int64_t k = 0;
  ActFormat act = ActFormat::kF32;
  bool norm = false;
  double norm_eps = 0;
};
Kernel BuildRowsToActs(const RowsToActsParams& params, const Machine& machine);

// x += norm(y) per row of k f32 values (post-norms). One row a tile.
// Buffers: y, norm, x (written).
Kernel BuildNormAdd(const std::string& name, int64_t k, double eps, const Machine& machine);

// Embedding rows: out[i] = scale * W[ids[i]], one row a tile.
// Buffers: w (strip layout), ids (s32), out (written, f32 rows of k).
Kernel BuildEmbed(const std::string& name, WeightLayout layout, int64_t k, double scale,
                  const Machine& machine);

}  // namespace cuvil::kernel
