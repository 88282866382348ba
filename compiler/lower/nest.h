// A loop nest: the unit that becomes one kernel and one launch.
//
//   for every point of `kept` (split into tiles, outer loops first):
//     for each reduction in order: fold its value over `reduced`
//     `once` stores, at the point
//     for every point of `reduced`: the other stores
//
// Later reductions and all stores may use results of earlier ones. Softmax, for one, is two
// reductions and a store over the reduced loop. An elementwise chain has no reduced loops.
//
// Invariant: for a fixed point of `kept` no store writes bytes that another point reads or writes,
// so tiles are independent.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"
#include "compiler/lower/expr.h"

namespace cuvil::lower {

enum class Fold : uint8_t {
  kSum,
  kProduct,
  kDot,  // sum of value * other, one rounding a step
  kMax,  // NaN propagates
  kMin,
  kMaxOrNumber,  // NaN is skipped, as std::max does
  kArgMax,       // i32 position of the first largest; over one loop
  kArgMin,
};

struct Reduction {
  Fold fold = Fold::kSum;
  ExprPtr value;
  ExprPtr other;  // kDot only
  // The dtype folded in is the value's; the result has it too, but i32 for kArgMax and kArgMin.
};

struct Store {
  int buffer = -1;
  Affine at;
  ExprPtr value;         // has the buffer's element type
  bool reduced = false;  // runs over the reduced loops too
};

struct NestBuffer {
  int storage = -1;  // the caller's number
  bool written = false;
};

struct Nest {
  std::string name;
  std::vector<ir::Dim> kept, reduced;  // extents, outermost first
  std::vector<Reduction> reductions;
  std::vector<Store> stores;
  std::vector<NestBuffer> buffers;

  size_t loops() const { return kept.size() + reduced.size(); }
  // The buffer of that storage, added when new.
  int BufferOf(int storage, bool written);
};

// Drops loops of one iteration and merges neighbours whose every address advances as one loop.
absl::Status Simplify(Nest& nest);

struct NestKernel {
  kernel::Kernel kernel;     // buffers as nest.buffers, launch scalars as `symbols`
  std::vector<int> symbols;  // SymbolId values
  ir::Dim rows;              // the launch needs ceil(rows / rows_per_tile) tiles
  int64_t rows_per_tile = 1;
};

// Code for the nest; `lanes` is f32 lanes of one register. The innermost loop that makes most
// accesses contiguous is vectorised, with a scalar loop for what remains.
absl::StatusOr<NestKernel> BuildNestKernel(const Nest& nest, const kernel::Machine& machine,
                                           absl::Span<const ir::Symbol> symbols);

}  // namespace cuvil::lower
