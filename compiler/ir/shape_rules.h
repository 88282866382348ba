// Shape rules of ops.def, one function per name there. See ShapeRule in ops.h for the contract.
#pragma once

#include "compiler/ir/ops.h"

namespace cuvil::ir::shape_rules {

using Types = absl::StatusOr<std::vector<Type>>;

// elementwise (shape_elementwise.cc)
Types UnaryNumeric(const ShapeQuery& q);
Types UnaryFloat(const ShapeQuery& q);
Types UnaryLogical(const ShapeQuery& q);
Types BinaryNumeric(const ShapeQuery& q);
Types BinaryFloat(const ShapeQuery& q);
Types BinaryLogical(const ShapeQuery& q);
Types Compare(const ShapeQuery& q);
Types Select(const ShapeQuery& q);
Types Cast(const ShapeQuery& q);

// reductions, products, norms, attention, quantisation (shape_compute.cc)
Types Reduce(const ShapeQuery& q);
Types ReduceFloat(const ShapeQuery& q);
Types ArgReduce(const ShapeQuery& q);
Types Softmax(const ShapeQuery& q);
Types MatMul(const ShapeQuery& q);
Types RmsNorm(const ShapeQuery& q);
Types LayerNorm(const ShapeQuery& q);
Types Rope(const ShapeQuery& q);
Types KvAppend(const ShapeQuery& q);
Types Attention(const ShapeQuery& q);
Types QuantiseDynamic(const ShapeQuery& q);
Types Dequantise(const ShapeQuery& q);

// shape and movement (shape_movement.cc)
Types Reshape(const ShapeQuery& q);
Types Transpose(const ShapeQuery& q);
Types BroadcastTo(const ShapeQuery& q);
Types Slice(const ShapeQuery& q);
Types Concat(const ShapeQuery& q);
Types Gather(const ShapeQuery& q);
Types Iota(const ShapeQuery& q);
Types Pad(const ShapeQuery& q);

// ---- Shared by the rules ----

// The input as a tensor, or an error naming its position.
absl::StatusOr<const TensorType*> TensorAt(const ShapeQuery& q, size_t index);
// As TensorAt, refusing block types, which only a few ops read.
absl::StatusOr<const TensorType*> ScalarTensorAt(const ShapeQuery& q, size_t index);
// Numpy broadcasting; two symbolic extents must be the same polynomial.
absl::StatusOr<std::vector<Dim>> Broadcast(absl::Span<const Dim> a, absl::Span<const Dim> b,
                                           absl::Span<const Symbol> symbols);
// The attribute as an axis of a tensor of that rank (0..rank-1; negative axes are refused).
absl::StatusOr<int> AxisOf(const ShapeQuery& q, std::string_view attr, int rank);
absl::Status Invalid(std::string_view sentence);

}  // namespace cuvil::ir::shape_rules
