// Code for one element (or one vector of elements) of each elementwise op, as ops.def words it.
//
// In a kernel, an element of a dtype is held as: bool -> i1; u64 -> s64 (kernel IR has no u64, so
// comparison, division and conversion treat the sign bit as a digit); f16 and bf16 -> f32 already
// rounded; everything else as itself.
#pragma once

#include <functional>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "compiler/ir/attr.h"
#include "compiler/ir/ops.h"
#include "compiler/kernel/kir.h"

namespace cuvil::lower {

using kernel::Builder;
using kernel::Scalar;

Scalar ComputeScalar(DType dtype);  // in registers
Scalar MemoryScalar(DType dtype);   // in buffers; bool is u8

// Computes one op from its operands, all of one lane count.
using ScalarCode = std::function<kernel::Value(Builder&, absl::Span<const kernel::Value>)>;

// The code of an elementwise node (unary, binary, compare, select, cast, clamp). `in` is the dtype
// of its data operands, `out` of its result. REQUIRES: IsElementwise(op).
ScalarCode CodeOf(ir::OpKind op, const ir::Attrs& attrs, DType in, DType out);
bool IsElementwise(ir::OpKind op);
// Operations a person would count: 1 for an add, more for a polynomial or a division.
int CostOf(ir::OpKind op);

// As `cast`.
kernel::Value Convert(Builder& b, kernel::Value v, DType from, DType to);
// Rounds the f32 that holds an f16 or bf16; the identity for other dtypes.
kernel::Value RoundTo(Builder& b, kernel::Value v, DType dtype);
// a < b, in the order of the dtype (u64 too).
kernel::Value Less(Builder& b, kernel::Value x, kernel::Value y, DType dtype);
// NaN propagates.
kernel::Value Smaller(Builder& b, kernel::Value x, kernel::Value y, DType dtype);
kernel::Value Larger(Builder& b, kernel::Value x, kernel::Value y, DType dtype);

// A constant of the dtype, converted from a real as `cast` does.
kernel::Value Constant(Builder& b, double value, DType dtype, int lanes);
// A constant from its bits: the integer itself, or the memory bits of a float.
kernel::Value ConstantBits(Builder& b, uint64_t bits, DType dtype, int lanes);

}  // namespace cuvil::lower
