#include "compiler/lower/nodes.h"

#include <cstring>

#include "compiler/lower/expr_builder.h"

namespace cuvil::lower {
namespace {

using ir::Dim;
using ir::Node;
using ir::OpKind;
using ir::TensorType;
using ir::ValueId;
using Nests = absl::StatusOr<std::vector<NodeNest>>;

class NodeLowering {
 public:
  NodeLowering(const ir::Graph& graph, ir::NodeId id, const Fusion& fusion, Environment& env)
      : g_(graph), id_(id), node_(graph.node(id)), fusion_(fusion), env_(env) {}

  Nests Run() {
    switch (node_.op) {
      case OpKind::kReduceSum:
      case OpKind::kReduceMean:
      case OpKind::kReduceMax:
      case OpKind::kReduceMin:
      case OpKind::kReduceProd:
        return Reduce();
      case OpKind::kArgMax:
      case OpKind::kArgMin:
        return ArgReduce();
      case OpKind::kSoftmax:
        return Softmax();
      case OpKind::kMatMul:
        return MatMul();
      case OpKind::kConcat:
        return Concat();
      case OpKind::kPad:
        return Pad();
      case OpKind::kRmsNorm:
      case OpKind::kLayerNorm:
        return Norm();
      case OpKind::kRope:
        return Rope();
      case OpKind::kQuantiseDynamic:
        return Quantise();
      case OpKind::kDequantise:
        return Dequantise();
      default:
        return Map();
    }
  }

 private:
  // ---- Pieces ----

  const TensorType& In(size_t i) const { return g_.tensor_type(node_.inputs[i]); }
  const TensorType& Out(size_t i = 0) const { return g_.tensor_type(node_.outputs[i]); }

  // Starts nests_.back() with these loops; points are made from counters afterwards.
  NodeNest& Begin(std::vector<Dim> kept, std::vector<Dim> reduced = {}) {
    nests_.emplace_back();
    nests_.back().nest.kept = std::move(kept);
    nests_.back().nest.reduced = std::move(reduced);
    nests_.back().nodes.push_back(id_);
    return nests_.back();
  }
  Nest& nest() { return nests_.back().nest; }
  ExprBuilder Exprs() { return ExprBuilder(g_, fusion_, env_, nests_.back()); }
  Affine Counter(size_t loop) { return Affine::Counter(nest().loops(), loop); }
  Affine Zero() { return Affine::Zero(nest().loops()); }
  Point Counters(size_t count) {
    Point p;
    for (size_t i = 0; i < count; ++i) p.push_back(Counter(i));
    return p;
  }

  absl::Status StoreTo(ValueId value, const Point& at, ExprPtr x, bool reduced) {
    const TensorType& type = g_.tensor_type(value);
    Store store{nest().BufferOf(env_.StorageOf(value), true), Zero(),
                MakeCast(std::move(x), type.dtype), reduced};
    if (!at.empty()) {
      ASSIGN_OR_RETURN(store.at, Flat(type.dims, at));
    }
    nest().stores.push_back(std::move(store));
    return absl::OkStatus();
  }

  // Adds a reduction and gives its result.
  ExprPtr FoldIn(Fold fold, ExprPtr value, ExprPtr other = nullptr) {
    const bool arg = fold == Fold::kArgMax || fold == Fold::kArgMin;
    const DType d = arg ? DType::kI32 : ValueDType(*value);
    nest().reductions.push_back({fold, std::move(value), std::move(other)});
    return MakeReduction(static_cast<int>(nest().reductions.size()) - 1, d);
  }

  ExprPtr Count(const Dim& dim) {
    Affine a = Zero();
    a.offset = dim;
    return MakeCast(MakeCounter(std::move(a)), DType::kF64);
  }

  Nests Done() { return std::move(nests_); }

  // ---- Ops ----

  Nests Map() {
    Begin(Out().dims);
    const Point at = Counters(Out().dims.size());
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Compute(node_, at));
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], at, std::move(x), false));
    return Done();
  }

  // Loops for reducing `axes` of input 0: the point of the input, and of the result.
  struct Split {
    Point input, kept;
    Dim count;  // elements reduced
  };
  absl::StatusOr<Split> BeginReduction(absl::Span<const int64_t> axes, bool keepdims) {
    const std::vector<Dim>& dims = In(0).dims;
    std::vector<bool> is_reduced(dims.size());
    for (const int64_t axis : axes) is_reduced[axis] = true;
    std::vector<Dim> kept, reduced;
    for (size_t i = 0; i < dims.size(); ++i) (is_reduced[i] ? reduced : kept).push_back(dims[i]);
    Split split;
    ASSIGN_OR_RETURN(split.count, ir::Product(reduced));
    Begin(kept, reduced);
    size_t next_kept = 0, next_reduced = kept.size();
    for (size_t i = 0; i < dims.size(); ++i) {
      split.input.push_back(Counter(is_reduced[i] ? next_reduced++ : next_kept++));
      if (!is_reduced[i]) split.kept.push_back(split.input.back());
      if (is_reduced[i] && keepdims) split.kept.push_back(Zero());
    }
    return split;
  }

  Nests Reduce() {
    ASSIGN_OR_RETURN(const Split split,
                     BeginReduction(node_.attrs.Ints("axes"), node_.attrs.Bool("keepdims")));
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], split.input));
    const bool extreme = node_.op == OpKind::kReduceMax || node_.op == OpKind::kReduceMin;
    if (Info(In(0).dtype).is_float && !extreme) x = MakeCast(std::move(x), DType::kF64);
    ExprPtr result;
    switch (node_.op) {
      case OpKind::kReduceMax:
        result = FoldIn(Fold::kMax, x);
        break;
      case OpKind::kReduceMin:
        result = FoldIn(Fold::kMin, x);
        break;
      case OpKind::kReduceProd:
        result = FoldIn(Fold::kProduct, x);
        break;
      default:
        result = FoldIn(Fold::kSum, x);
        break;
    }
    if (node_.op == OpKind::kReduceMean)
      result = MakeBinary(OpKind::kDiv, result, Count(split.count));
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], split.kept, std::move(result), false));
    return Done();
  }

  Nests ArgReduce() {
    const int64_t axis = node_.attrs.Int("axis");
    ASSIGN_OR_RETURN(const Split split, BeginReduction({axis}, node_.attrs.Bool("keepdims")));
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], split.input));
    ExprPtr at = FoldIn(node_.op == OpKind::kArgMax ? Fold::kArgMax : Fold::kArgMin, std::move(x));
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], split.kept, std::move(at), false));
    return Done();
  }

  Nests Softmax() {
    ASSIGN_OR_RETURN(const Split split, BeginReduction({node_.attrs.Int("axis")}, true));
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], split.input));
    x = MakeCast(std::move(x), DType::kF64);
    ExprPtr max = FoldIn(Fold::kMax, x);
    ExprPtr e = MakeUnary(OpKind::kExp, MakeBinary(OpKind::kSub, x, max));
    ExprPtr sum = FoldIn(Fold::kSum, e);
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], split.input, MakeBinary(OpKind::kDiv, e, sum), true));
    return Done();
  }

  Nests Norm() {
    const size_t last = In(0).dims.size() - 1;
    ASSIGN_OR_RETURN(const Split split, BeginReduction({static_cast<int64_t>(last)}, true));
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], split.input));
    x = MakeCast(std::move(x), DType::kF64);
    if (node_.op == OpKind::kLayerNorm) {
      ExprPtr mean = MakeBinary(OpKind::kDiv, FoldIn(Fold::kSum, x), Count(split.count));
      x = MakeBinary(OpKind::kSub, x, mean);
    }
    ExprPtr square = MakeBinary(OpKind::kDiv, FoldIn(Fold::kDot, x, x), Count(split.count));
    ExprPtr eps = MakeConstant(node_.attrs.Float("eps"), DType::kF64);
    ExprPtr scale = MakeUnary(OpKind::kRsqrt, MakeBinary(OpKind::kAdd, square, eps));
    ExprPtr y = MakeBinary(OpKind::kMul, x, scale);
    for (size_t i = 1; i < node_.inputs.size(); ++i) {  // weight, bias
      ASSIGN_OR_RETURN(ExprPtr p, Exprs().Value(node_.inputs[i], {split.input[last]}));
      y = MakeBinary(i == 1 ? OpKind::kMul : OpKind::kAdd, y, MakeCast(std::move(p), DType::kF64));
    }
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], split.input, std::move(y), true));
    return Done();
  }

  Nests MatMul() {
    const std::vector<Dim>& out = Out().dims;
    const size_t rank = out.size();
    Begin(out, {In(0).dims.back()});
    const Point at = Counters(rank);
    // The point of an operand whose matrix dims are (row, column).
    const auto operand = [&](size_t i, Affine row, Affine column) {
      const std::vector<Dim>& dims = In(i).dims;
      Point p;
      for (size_t d = 0; d + 2 < dims.size(); ++d) {
        p.push_back(dims[d].is(1) ? Zero() : at[rank - dims.size() + d]);
      }
      p.push_back(std::move(row));
      p.push_back(std::move(column));
      return p;
    };
    const Affine k = Counter(rank);
    const bool transposed = node_.attrs.Bool("transpose_b");
    const Affine n = at[rank - 1];
    ASSIGN_OR_RETURN(ExprPtr a, Exprs().Value(node_.inputs[0], operand(0, at[rank - 2], k)));
    ASSIGN_OR_RETURN(ExprPtr b, Exprs().Value(node_.inputs[1],
                                              transposed ? operand(1, n, k) : operand(1, k, n)));
    const DType d = Out().dtype == DType::kI32 ? DType::kI32 : DType::kF64;
    ExprPtr sum = FoldIn(Fold::kDot, MakeCast(std::move(a), d), MakeCast(std::move(b), d));
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], at, std::move(sum), false));
    return Done();
  }

  // Copies input i to where `at` of the output begins: one nest of its own loops.
  absl::Status CopyInto(size_t i, const Point& offset_of_first) {
    Begin(In(i).dims);
    Point from = Counters(In(i).dims.size()), to = from;
    for (size_t d = 0; d < to.size(); ++d) {
      ASSIGN_OR_RETURN(to[d].offset, ir::Add(to[d].offset, offset_of_first[d].offset));
    }
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[i], from));
    return StoreTo(node_.outputs[0], to, std::move(x), false);
  }

  Nests Concat() {
    const size_t axis = static_cast<size_t>(node_.attrs.Int("axis"));
    Point first(Out().dims.size());
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      RETURN_IF_ERROR(CopyInto(i, first));
      ASSIGN_OR_RETURN(first[axis].offset, ir::Add(first[axis].offset, In(i).dims[axis]));
    }
    return Done();
  }

  Nests Pad() {
    Begin(Out().dims);
    const Point all = Counters(Out().dims.size());
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], all,
                            MakeConstant(node_.attrs.Float("value"), Out().dtype), false));
    Point first(Out().dims.size());
    for (size_t d = 0; d < first.size(); ++d) first[d].offset = Dim(node_.attrs.Ints("lo")[d]);
    RETURN_IF_ERROR(CopyInto(0, first));
    return Done();
  }

  Nests Rope() {
    const int64_t pairs = node_.attrs.Int("dim") / 2;
    const std::vector<Dim>& dims = In(0).dims;
    Begin({dims[0], dims[1], Dim(pairs)});
    const bool half = node_.attrs.String("kind") == "half";
    Point first = Counters(3);
    if (!half) {
      ASSIGN_OR_RETURN(first[2], Scale(first[2], Dim(2)));
    }
    Point second = first;
    second[2].offset = Dim(half ? pairs : 1);
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], first));
    ASSIGN_OR_RETURN(ExprPtr y, Exprs().Value(node_.inputs[0], second));
    ASSIGN_OR_RETURN(ExprPtr position, Exprs().Value(node_.inputs[1], {Counter(0)}));
    const absl::Span<const double> freqs = node_.attrs.Floats("freqs");
    std::vector<uint8_t> bytes(freqs.size() * sizeof(double));
    std::memcpy(bytes.data(), freqs.data(), bytes.size());
    ExprPtr freq = MakeLoad(nest().BufferOf(env_.StorageOfBytes(std::move(bytes)), false),
                            DType::kF64, Counter(2));
    ExprPtr angle =
        MakeBinary(OpKind::kMul, MakeCast(std::move(position), DType::kF64), std::move(freq));
    ExprPtr scale = MakeConstant(node_.attrs.Float("scale", 1.0), DType::kF64);
    ExprPtr cos = MakeBinary(OpKind::kMul, MakeUnary(OpKind::kCos, angle), scale);
    ExprPtr sin = MakeBinary(OpKind::kMul, MakeUnary(OpKind::kSin, angle), scale);
    x = MakeCast(std::move(x), DType::kF64);
    y = MakeCast(std::move(y), DType::kF64);
    const auto product = [](ExprPtr a, ExprPtr b) { return MakeBinary(OpKind::kMul, a, b); };
    const ValueId out = node_.outputs[0];
    RETURN_IF_ERROR(
        StoreTo(out, first, MakeBinary(OpKind::kSub, product(x, cos), product(y, sin)), false));
    RETURN_IF_ERROR(
        StoreTo(out, second, MakeBinary(OpKind::kAdd, product(x, sin), product(y, cos)), false));
    return RopeTail(pairs * 2);
  }

  // Elements past the rotated ones pass through.
  Nests RopeTail(int64_t rotated) {
    const std::vector<Dim>& dims = In(0).dims;
    const int64_t rest = *dims[2].constant() - rotated;
    if (rest > 0) {
      Begin({dims[0], dims[1], Dim(rest)});
      Point at = Counters(3);
      at[2].offset = Dim(rotated);
      ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], at));
      RETURN_IF_ERROR(StoreTo(node_.outputs[0], at, std::move(x), false));
    }
    return Done();
  }

  // Loops over [..., groups] and, kept or reduced, the elements of a group: the point of the
  // grouped tensor and of its scales.
  struct Grouped {
    Point element, group;
  };
  absl::StatusOr<Grouped> BeginGroups(const std::vector<Dim>& groups, bool reduce) {
    const int64_t group = node_.attrs.Int("group");
    std::vector<Dim> kept = groups, reduced;
    (reduce ? reduced : kept).push_back(Dim(group));
    Begin(kept, reduced);
    Grouped at;
    at.group = Counters(groups.size());
    at.element = at.group;
    ASSIGN_OR_RETURN(at.element.back(), Scale(at.element.back(), Dim(group)));
    ASSIGN_OR_RETURN(at.element.back(), Add(at.element.back(), Counter(groups.size())));
    return at;
  }

  Nests Quantise() {
    ASSIGN_OR_RETURN(const Grouped at, BeginGroups(Out(1).dims, true));
    ASSIGN_OR_RETURN(ExprPtr x, Exprs().Value(node_.inputs[0], at.element));
    x = MakeCast(std::move(x), DType::kF32);
    ExprPtr largest = FoldIn(Fold::kMaxOrNumber, MakeUnary(OpKind::kAbs, x));
    ExprPtr scale = MakeBinary(OpKind::kDiv, largest, MakeConstant(127, DType::kF32));
    ExprPtr zero = MakeConstant(0, DType::kF32);
    ExprPtr positive =
        MakeOp(DType::kBool, CodeOf(OpKind::kLt, {}, DType::kF32, DType::kBool), {zero, scale});
    ExprPtr q = MakeUnary(OpKind::kRound, MakeBinary(OpKind::kDiv, x, scale));
    const ir::Attrs range{{"min", -127.0}, {"max", 127.0}};
    q = MakeOp(DType::kF32, CodeOf(OpKind::kClamp, range, DType::kF32, DType::kF32), {q});
    q = MakeOp(DType::kF32, CodeOf(OpKind::kSelect, {}, DType::kF32, DType::kF32),
               {positive, q, zero});
    RETURN_IF_ERROR(StoreTo(node_.outputs[1], at.group, scale, false));
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], at.element, std::move(q), true));
    return Done();
  }

  Nests Dequantise() {
    if (node_.inputs.size() == 1) {
      Begin(Out().dims);
      const Point at = Counters(Out().dims.size());
      ASSIGN_OR_RETURN(ExprPtr x, Exprs().Load(node_.inputs[0], at));
      RETURN_IF_ERROR(StoreTo(node_.outputs[0], at, std::move(x), false));
      return Done();
    }
    ASSIGN_OR_RETURN(const Grouped at, BeginGroups(In(1).dims, false));
    ASSIGN_OR_RETURN(ExprPtr q, Exprs().Value(node_.inputs[0], at.element));
    ASSIGN_OR_RETURN(ExprPtr scale, Exprs().Value(node_.inputs[1], at.group));
    ExprPtr x = MakeBinary(OpKind::kMul, MakeCast(std::move(q), DType::kF32), std::move(scale));
    RETURN_IF_ERROR(StoreTo(node_.outputs[0], at.element, std::move(x), false));
    return Done();
  }

  const ir::Graph& g_;
  const ir::NodeId id_;
  const Node& node_;
  const Fusion& fusion_;
  Environment& env_;
  std::vector<NodeNest> nests_;
};

}  // namespace

absl::StatusOr<std::vector<NodeNest>> NestsOf(const ir::Graph& graph, ir::NodeId node,
                                              const Fusion& fusion, Environment& env) {
  return NodeLowering(graph, node, fusion, env).Run();
}

absl::StatusOr<NodeNest> CopyNest(const TensorType& type, int from, int to) {
  NodeNest copy;
  ASSIGN_OR_RETURN(Dim count, ir::Product(type.dims));
  copy.nest.kept = {count};
  ExprPtr x = MakeLoad(copy.nest.BufferOf(from, false), type.dtype, Affine::Counter(1, 0));
  copy.nest.stores.push_back(
      {copy.nest.BufferOf(to, true), Affine::Counter(1, 0), std::move(x), false});
  return copy;
}

}  // namespace cuvil::lower
