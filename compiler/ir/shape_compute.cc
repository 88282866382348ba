#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/shape_rules.h"

namespace cuvil::ir::shape_rules {
namespace {

absl::string_view Name(DType dtype) { return Sv(Info(dtype).name); }

// Every extent but the two of the matrix.
absl::Span<const Dim> Batch(const TensorType& type) {
  return absl::MakeConstSpan(type.dims).subspan(0, type.dims.size() - 2);
}

absl::StatusOr<const TensorType*> FloatTensorAt(const ShapeQuery& q, size_t index) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, index));
  if (!Info(x->dtype).is_float) {
    return Invalid(absl::StrCat("input ", index, " must be a float type, not ", Name(x->dtype)));
  }
  return x;
}

absl::StatusOr<DType> ProductType(DType a, DType b) {
  if (a == b && Info(a).is_float && !IsBlock(a)) return a;
  const auto is_byte = [](DType t) { return t == DType::kI8 || t == DType::kU8; };
  if (is_byte(a) && is_byte(b)) return DType::kI32;
  const bool a_ok = a == DType::kF32 || a == DType::kF16 || a == DType::kBf16;
  if (a_ok && (IsBlock(b) || b == DType::kF16 || b == DType::kBf16)) return a;
  return Invalid(absl::StrCat("cannot multiply ", Name(a), " by ", Name(b), "; insert a cast"));
}

absl::Status CheckSame(std::string_view what, const Dim& got, const Dim& want,
                       absl::Span<const Symbol> symbols) {
  if (got == want) return absl::OkStatus();
  return Invalid(
      absl::StrCat(Sv(what), " is ", ToString(got, symbols), ", want ", ToString(want, symbols)));
}

// A norm's weight or bias: one value per element of x's last dim, same dtype as x or f32.
absl::Status CheckNormParameter(const ShapeQuery& q, size_t index, const TensorType& x) {
  ASSIGN_OR_RETURN(const TensorType* p, FloatTensorAt(q, index));
  if (p->rank() != 1 || p->dims[0] != x.dims.back() ||
      (p->dtype != x.dtype && p->dtype != DType::kF32)) {
    return Invalid(absl::StrCat("input ", index, " (", ToString(Type(*p), q.symbols), ") must be ",
                                Name(x.dtype), " or f32 [", ToString(x.dims.back(), q.symbols),
                                "]"));
  }
  return absl::OkStatus();
}

Types Norm(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, FloatTensorAt(q, 0));
  if (x->rank() == 0) return Invalid("needs at least one dim");
  for (size_t i = 1; i < q.inputs.size(); ++i) RETURN_IF_ERROR(CheckNormParameter(q, i, *x));
  const double eps = q.attrs.Float("eps");
  if (!(eps >= 0) || std::isinf(eps)) return Invalid(absl::StrCat("eps ", eps, " is not >= 0"));
  return std::vector<Type>{*x};
}

// q, k or v of a step: [rows, heads, dim].
absl::StatusOr<const TensorType*> HeadsAt(const ShapeQuery& q, size_t index) {
  ASSIGN_OR_RETURN(const TensorType* x, FloatTensorAt(q, index));
  if (x->rank() != 3 || !x->dims[1].constant() || !x->dims[2].constant()) {
    return Invalid(absl::StrCat("input ", index,
                                " must be [rows, heads, dim] with constant heads "
                                "and dim, not ",
                                ToString(Type(*x), q.symbols)));
  }
  return x;
}

absl::StatusOr<const KvType*> KvAt(const ShapeQuery& q, size_t index) {
  const KvType* kv = AsKv(*q.inputs[index]);
  if (kv == nullptr) return Invalid(absl::StrCat("input ", index, " must be kv state"));
  return kv;
}

absl::Status CheckStep(const ShapeQuery& q, size_t index) {
  if (IsStep(*q.inputs[index])) return absl::OkStatus();
  return Invalid(absl::StrCat("input ", index, " must be the step header"));
}

absl::StatusOr<std::vector<bool>> ReducedAxes(const ShapeQuery& q, int rank) {
  std::vector<bool> reduced(rank);
  for (int64_t axis : q.attrs.Ints("axes")) {
    if (axis < 0 || axis >= rank || reduced[axis]) {
      return Invalid(absl::StrCat("axis ", axis, " is repeated or outside 0..", rank - 1));
    }
    reduced[axis] = true;
  }
  return reduced;
}

std::vector<Dim> DropAxes(const TensorType& x, const std::vector<bool>& reduced, bool keepdims) {
  std::vector<Dim> dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[i]) {
      dims.push_back(x.dims[i]);
    } else if (keepdims) {
      dims.push_back(1);
    }
  }
  return dims;
}

// Splits the last extent into groups, or says why it cannot.
absl::StatusOr<std::vector<Dim>> GroupDims(const ShapeQuery& q, const TensorType& x) {
  const int64_t group = q.attrs.Int("group");
  if (x.rank() == 0 || group < 1) return Invalid("needs a last dim and group >= 1");
  std::vector<Dim> dims = x.dims;
  const std::optional<Dim> groups = DivideExactly(dims.back(), group);
  if (!groups) {
    return Invalid(absl::StrCat("last extent ", ToString(dims.back(), q.symbols),
                                " is not a multiple of group ", group));
  }
  dims.back() = *groups;
  return dims;
}

}  // namespace

Types Reduce(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  if (x->dtype == DType::kBool) return Invalid("needs a number type, not bool; insert a cast");
  ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxes(q, x->rank()));
  return std::vector<Type>{TensorType{x->dtype, DropAxes(*x, reduced, q.attrs.Bool("keepdims"))}};
}

Types ReduceFloat(const ShapeQuery& q) {
  RETURN_IF_ERROR(FloatTensorAt(q, 0).status());
  return Reduce(q);
}

Types ArgReduce(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  if (x->dtype == DType::kBool) return Invalid("needs a number type, not bool; insert a cast");
  ASSIGN_OR_RETURN(const int axis, AxisOf(q, "axis", x->rank()));
  ASSIGN_OR_RETURN(const DimRange extent, RangeOf(x->dims[axis], q.symbols));
  if (extent.min < 1 || extent.max > INT32_MAX) {
    return Invalid(absl::StrCat("extent of axis ", axis, " must be 1..2^31-1, not ", extent.min,
                                "..", extent.max));
  }
  std::vector<bool> reduced(x->rank());
  reduced[axis] = true;
  return std::vector<Type>{
      TensorType{DType::kI32, DropAxes(*x, reduced, q.attrs.Bool("keepdims"))}};
}

Types Softmax(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, FloatTensorAt(q, 0));
  RETURN_IF_ERROR(AxisOf(q, "axis", x->rank()).status());
  return std::vector<Type>{*x};
}

Types MatMul(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* a, ScalarTensorAt(q, 0));
  ASSIGN_OR_RETURN(const TensorType* b, TensorAt(q, 1));
  if (a->rank() < 2 || b->rank() < 2) return Invalid("both operands need rank 2 or more");
  const bool transposed = q.attrs.Bool("transpose_b");
  if (IsBlock(b->dtype) && (b->rank() != 2 || !transposed)) {
    return Invalid("a block-typed operand must be [n, k] with transpose_b");
  }
  ASSIGN_OR_RETURN(const DType dtype, ProductType(a->dtype, b->dtype));
  const size_t last = b->dims.size() - 1;
  const Dim& k = b->dims[transposed ? last : last - 1];
  const Dim& n = b->dims[transposed ? last - 1 : last];
  RETURN_IF_ERROR(CheckSame("b's inner extent", k, a->dims.back(), q.symbols));
  ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(Batch(*a), Batch(*b), q.symbols));
  dims.push_back(a->dims[a->dims.size() - 2]);
  dims.push_back(n);
  return std::vector<Type>{TensorType{dtype, std::move(dims)}};
}

Types RmsNorm(const ShapeQuery& q) { return Norm(q); }
Types LayerNorm(const ShapeQuery& q) { return Norm(q); }

Types Rope(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, HeadsAt(q, 0));
  ASSIGN_OR_RETURN(const TensorType* positions, ScalarTensorAt(q, 1));
  if (positions->dtype != DType::kI32 || positions->rank() != 1) {
    return Invalid("positions must be i32 [rows]");
  }
  RETURN_IF_ERROR(CheckSame("rows of positions", positions->dims[0], x->dims[0], q.symbols));
  const int64_t dim = q.attrs.Int("dim");
  if (dim < 2 || dim % 2 != 0 || dim > *x->dims[2].constant()) {
    return Invalid(absl::StrCat("dim ", dim, " must be even and in 2..", *x->dims[2].constant()));
  }
  const absl::Span<const double> freqs = q.attrs.Floats("freqs");
  if (static_cast<int64_t>(freqs.size()) != dim / 2) {
    return Invalid(absl::StrCat("freqs has ", freqs.size(), " entries, want dim/2 = ", dim / 2));
  }
  const std::string_view kind = q.attrs.String("kind");
  if (kind != "adjacent" && kind != "half") {
    return Invalid(absl::StrCat("kind '", Sv(kind), "' must be 'adjacent' or 'half'"));
  }
  return std::vector<Type>{*x};
}

Types KvAppend(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const KvType* kv, KvAt(q, 0));
  RETURN_IF_ERROR(CheckStep(q, 3));
  for (size_t i : {1, 2}) {
    ASSIGN_OR_RETURN(const TensorType* x, HeadsAt(q, i));
    RETURN_IF_ERROR(CheckSame("kv heads", x->dims[1], kv->heads, q.symbols));
    RETURN_IF_ERROR(CheckSame("head dim", x->dims[2], kv->dim, q.symbols));
  }
  RETURN_IF_ERROR(CheckSame("rows of v", AsTensor(*q.inputs[2])->dims[0],
                            AsTensor(*q.inputs[1])->dims[0], q.symbols));
  return std::vector<Type>{*kv};
}

Types Attention(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, HeadsAt(q, 0));
  ASSIGN_OR_RETURN(const KvType* kv, KvAt(q, 1));
  RETURN_IF_ERROR(CheckStep(q, 2));
  RETURN_IF_ERROR(CheckSame("head dim", x->dims[2], kv->dim, q.symbols));
  if (*x->dims[1].constant() % kv->heads != 0) {
    return Invalid(
        absl::StrCat(*x->dims[1].constant(), " heads do not divide into ", kv->heads, " kv heads"));
  }
  if (q.attrs.Int("kv_heads", kv->heads) != kv->heads) {
    return Invalid(absl::StrCat("kv_heads ", q.attrs.Int("kv_heads"), " differs from the state's ",
                                kv->heads));
  }
  if (q.attrs.Int("window") < 0 || q.attrs.Int("sinks") < 0 || q.attrs.Float("softcap") < 0) {
    return Invalid("window, sinks and softcap must not be negative");
  }
  return std::vector<Type>{*x};
}

Types QuantiseDynamic(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, FloatTensorAt(q, 0));
  ASSIGN_OR_RETURN(std::vector<Dim> groups, GroupDims(q, *x));
  return std::vector<Type>{TensorType{DType::kI8, x->dims},
                           TensorType{DType::kF32, std::move(groups)}};
}

Types Dequantise(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, TensorAt(q, 0));
  if (q.inputs.size() == 1) {
    if (!IsBlock(x->dtype)) return Invalid("with one input, it must be block-typed");
    if (q.attrs.Has("group")) return Invalid("a block type has its own group; drop the attribute");
    return std::vector<Type>{TensorType{DType::kF32, x->dims}};
  }
  ASSIGN_OR_RETURN(const TensorType* scale, TensorAt(q, 1));
  ASSIGN_OR_RETURN(const std::vector<Dim> groups, GroupDims(q, *x));
  if (x->dtype != DType::kI8 || scale->dtype != DType::kF32 || scale->dims != groups) {
    return Invalid(absl::StrCat("(", ToString(Type(*x), q.symbols), ", ",
                                ToString(Type(*scale), q.symbols),
                                ") is not i8 with one f32 scale per group"));
  }
  return std::vector<Type>{TensorType{DType::kF32, x->dims}};
}

}  // namespace cuvil::ir::shape_rules
