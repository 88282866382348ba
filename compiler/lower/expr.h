// What one loop nest computes for one point of its iteration space: a small DAG whose leaves read
// tensors at addresses affine in the loop counters. Movement ops (transpose, slice, broadcast_to)
// have no node of their own: they only change addresses.
//
// Built and rewritten by one thread; nodes belong to exactly one nest.
#pragma once

#include <memory>
#include <vector>

#include "compiler/ir/type.h"
#include "compiler/lower/scalar_code.h"

namespace cuvil::lower {

// offset + sum of coefs[i] * loop counter i, in elements or as a coordinate.
struct Affine {
  ir::Dim offset;
  std::vector<ir::Dim> coefs;  // one per loop: kept loops, then reduced loops

  static Affine Zero(size_t loops) { return {ir::Dim(), std::vector<ir::Dim>(loops)}; }
  static Affine Counter(size_t loops, size_t loop);
};

absl::StatusOr<Affine> Add(const Affine& a, const Affine& b);
absl::StatusOr<Affine> Scale(const Affine& a, const ir::Dim& factor);

struct Expr;
using ExprPtr = std::shared_ptr<Expr>;

struct Expr {
  enum class Kind : uint8_t {
    kLoad,       // the element of `buffer` at `at` (+ clamp(args[0]) * indirect_stride, for gather)
    kCounter,    // `at` itself, an i64
    kReduction,  // result number `index` of the nest's reductions
    kOp,         // code(args); constants are ops without arguments
  };
  Kind kind = Kind::kOp;
  DType dtype = DType::kF32;  // of the value; of the stored elements for loads
  int buffer = -1;            // index into Nest::buffers
  Affine at;
  ir::Dim indirect_stride, indirect_extent;
  int index = 0;
  ScalarCode code;
  std::vector<ExprPtr> args;
};

ExprPtr MakeLoad(int buffer, DType dtype, Affine at);
ExprPtr MakeCounter(Affine at);
ExprPtr MakeConstant(double value, DType dtype);
ExprPtr MakeReduction(int index, DType dtype);
ExprPtr MakeOp(DType dtype, ScalarCode code, std::vector<ExprPtr> args);
// A cast, or x itself. Block-typed loads count as f32.
ExprPtr MakeCast(ExprPtr x, DType to);
// f64 arithmetic for norms and the like.
ExprPtr MakeBinary(ir::OpKind op, ExprPtr x, ExprPtr y);
ExprPtr MakeUnary(ir::OpKind op, ExprPtr x);

// The dtype of the value in registers: f32 for block types.
DType ValueDType(const Expr& e);

}  // namespace cuvil::lower
