#include "compiler/lower/expr_builder.h"

#include <cstring>

#include "compiler/lower/packed.h"

namespace cuvil::lower {

using ir::Node;
using ir::OpKind;
using ir::ValueId;

absl::StatusOr<Affine> Flat(absl::Span<const ir::Dim> dims, const Point& at) {
  CUVIL_CHECK(dims.size() == at.size(), "one coordinate per dim");
  if (dims.empty()) return absl::InternalError("a scalar has no coordinates");
  Affine sum = at[0];
  for (size_t i = 1; i < dims.size(); ++i) {
    ASSIGN_OR_RETURN(sum, Scale(sum, dims[i]));
    ASSIGN_OR_RETURN(sum, Add(sum, at[i]));
  }
  return sum;
}

Point ExprBuilder::Broadcast(ValueId operand, const Point& at) const {
  const std::vector<ir::Dim>& dims = g_.tensor_type(operand).dims;
  Point point(at.end() - dims.size(), at.end());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].is(1)) point[i] = Affine::Zero(out_.nest.loops());
  }
  return point;
}

absl::StatusOr<ExprPtr> ExprBuilder::Load(ValueId value, const Point& at) {
  const ir::TensorType& type = g_.tensor_type(value);
  const DType d = type.dtype;
  if (IsBlock(d) && !CanDecode(d)) {
    return absl::UnimplementedError(absl::StrCat("cannot read ", Sv(Info(d).name),
                                                 " in a compiled graph; dequantise it at load"));
  }
  Affine flat = Affine::Zero(out_.nest.loops());
  if (!at.empty()) {
    ASSIGN_OR_RETURN(flat, Flat(type.dims, at));
  }
  return MakeLoad(out_.nest.BufferOf(env_.StorageOf(value), false), d, std::move(flat));
}

absl::StatusOr<ExprPtr> ExprBuilder::Value(ValueId value, const Point& at) {
  if (const ir::Constant* c = g_.FindConstant(value)) {
    const DType d = g_.tensor_type(value).dtype;
    if (static_cast<int>(c->bytes.size()) == Info(d).bytes) {  // one element
      uint64_t bits = 0;
      std::memcpy(&bits, c->bytes.data(), c->bytes.size());
      return MakeOp(
          d,
          [=](Builder& b, absl::Span<const kernel::Value>) { return ConstantBits(b, bits, d, 1); },
          {});
    }
  }
  if (fusion_.inlined[value.value]) {
    const ir::Value& v = g_.value(value);
    out_.nodes.push_back(v.node);
    return Compute(g_.node(v.node), at);
  }
  return Load(value, at);
}

absl::StatusOr<ExprPtr> ExprBuilder::Compute(const Node& node, const Point& at) {
  switch (node.op) {
    case OpKind::kTranspose: {
      const absl::Span<const int64_t> perm = node.attrs.Ints("perm");
      Point from(at.size());
      for (size_t i = 0; i < at.size(); ++i) from[perm[i]] = at[i];
      return Value(node.inputs[0], from);
    }
    case OpKind::kBroadcastTo:
      return Value(node.inputs[0], Broadcast(node.inputs[0], at));
    case OpKind::kSlice: {
      ASSIGN_OR_RETURN(const Point from, Sliced(node, at));
      return Value(node.inputs[0], from);
    }
    case OpKind::kIota: {
      return MakeCast(MakeCounter(at[node.attrs.Int("axis")]), node.attrs.Type("dtype"));
    }
    case OpKind::kGather:
      return Gather(node, at);
    default:
      return Elementwise(node, at);
  }
}

absl::StatusOr<ExprPtr> ExprBuilder::Elementwise(const Node& node, const Point& at) {
  if (!IsElementwise(node.op)) {
    return absl::UnimplementedError(absl::StrCat("cannot compile '", Sv(NameOf(node.op)), "' yet"));
  }
  std::vector<ExprPtr> args;
  for (const ValueId input : node.inputs) {
    ASSIGN_OR_RETURN(ExprPtr arg, Value(input, Broadcast(input, at)));
    args.push_back(std::move(arg));
  }
  const DType in = g_.tensor_type(node.inputs.back()).dtype;
  const DType out = g_.tensor_type(node.outputs[0]).dtype;
  return MakeOp(out, CodeOf(node.op, node.attrs, in, out), std::move(args));
}

absl::StatusOr<Point> ExprBuilder::Sliced(const Node& node, const Point& at) {
  const absl::Span<const ir::Dim> starts = node.attrs.Dims("starts");
  const absl::Span<const int64_t> steps = node.attrs.Ints("steps");
  Point from;
  for (size_t i = 0; i < at.size(); ++i) {
    ASSIGN_OR_RETURN(Affine a, Scale(at[i], ir::Dim(steps.empty() ? 1 : steps[i])));
    ASSIGN_OR_RETURN(a.offset, ir::Add(a.offset, starts[i]));
    from.push_back(std::move(a));
  }
  return from;
}

// data[:axis] + indices.shape + data[axis + 1:].
absl::StatusOr<ExprPtr> ExprBuilder::Gather(const Node& node, const Point& at) {
  const ValueId data = node.inputs[0], indices = node.inputs[1];
  const size_t axis = static_cast<size_t>(node.attrs.Int("axis"));
  const size_t index_rank = g_.tensor_type(indices).dims.size();
  const std::vector<ir::Dim>& dims = g_.tensor_type(data).dims;
  Point from(at.begin(), at.begin() + axis);
  from.push_back(Affine::Zero(out_.nest.loops()));
  from.insert(from.end(), at.begin() + axis + index_rank, at.end());
  const Point index_at(at.begin() + axis, at.begin() + axis + index_rank);
  ASSIGN_OR_RETURN(ExprPtr index, Value(indices, index_at));
  ASSIGN_OR_RETURN(ExprPtr load, Load(data, from));
  ASSIGN_OR_RETURN(load->indirect_stride, ir::Product(absl::MakeConstSpan(dims).subspan(axis + 1)));
  load->indirect_extent = dims[axis];
  load->args = {MakeCast(std::move(index), DType::kI64)};
  return load;
}

}  // namespace cuvil::lower
