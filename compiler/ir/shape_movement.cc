#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked.h"
#include "compiler/ir/shape_rules.h"

namespace cuvil::ir::shape_rules {
namespace {

std::string Shape(absl::Span<const Dim> dims, absl::Span<const Symbol> symbols) {
  return absl::StrCat(
      "[",
      absl::StrJoin(dims, ", ",
                    [&](std::string* out, const Dim& d) { *out += ToString(d, symbols); }),
      "]");
}

absl::Status CheckListLength(std::string_view attr, size_t length, int rank) {
  if (static_cast<int>(length) == rank) return absl::OkStatus();
  return Invalid(absl::StrCat(Sv(attr), " has ", length, " entries for a tensor of rank ", rank));
}

// Proves 0 <= start <= stop <= extent over the symbols' ranges.
absl::Status CheckSliceBounds(const Dim& start, const Dim& stop, const Dim& extent,
                              absl::Span<const Symbol> symbols) {
  ASSIGN_OR_RETURN(const Dim length, Subtract(stop, start));
  ASSIGN_OR_RETURN(const Dim rest, Subtract(extent, stop));
  for (const Dim* dim : {&start, &length, &rest}) {
    ASSIGN_OR_RETURN(const DimRange range, RangeOf(*dim, symbols));
    if (range.min < 0) {
      return Invalid(absl::StrCat("cannot prove 0 <= ", ToString(start, symbols), " <= ",
                                  ToString(stop, symbols), " <= ", ToString(extent, symbols)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Dim> SlicedExtent(const Dim& start, const Dim& stop, int64_t step) {
  ASSIGN_OR_RETURN(Dim length, Subtract(stop, start));
  if (step == 1) return length;
  if (step < 1) return Invalid(absl::StrCat("step ", step, " is not positive"));
  if (!length.constant()) return Invalid("a step other than 1 needs constant bounds");
  const int64_t n = *length.constant();
  return Dim(n / step + (n % step != 0 ? 1 : 0));
}

}  // namespace

Types Reshape(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  const absl::Span<const Dim> shape = q.attrs.Dims("shape");
  ASSIGN_OR_RETURN(const Dim from, Product(x->dims));
  ASSIGN_OR_RETURN(const Dim to, Product(shape));
  if (from != to) {
    return Invalid(absl::StrCat(Shape(x->dims, q.symbols), " has ", ToString(from, q.symbols),
                                " elements, but ", Shape(shape, q.symbols), " has ",
                                ToString(to, q.symbols)));
  }
  return std::vector<Type>{TensorType{x->dtype, {shape.begin(), shape.end()}}};
}

Types Transpose(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  const absl::Span<const int64_t> perm = q.attrs.Ints("perm");
  RETURN_IF_ERROR(CheckListLength("perm", perm.size(), x->rank()));
  std::vector<bool> used(perm.size());
  TensorType type{x->dtype, {}};
  for (int64_t source : perm) {
    if (source < 0 || source >= x->rank() || used[source]) {
      return Invalid(absl::StrCat("perm [", absl::StrJoin(perm, ", "), "] is no permutation"));
    }
    used[source] = true;
    type.dims.push_back(x->dims[source]);
  }
  return std::vector<Type>{std::move(type)};
}

Types BroadcastTo(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  const absl::Span<const Dim> shape = q.attrs.Dims("shape");
  ASSIGN_OR_RETURN(const std::vector<Dim> dims, Broadcast(x->dims, shape, q.symbols));
  if (absl::MakeConstSpan(dims) != shape) {
    return Invalid(absl::StrCat(Shape(x->dims, q.symbols), " does not broadcast to ",
                                Shape(shape, q.symbols)));
  }
  return std::vector<Type>{TensorType{x->dtype, dims}};
}

Types Slice(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  const absl::Span<const Dim> starts = q.attrs.Dims("starts");
  const absl::Span<const Dim> stops = q.attrs.Dims("stops");
  const absl::Span<const int64_t> steps = q.attrs.Ints("steps");
  RETURN_IF_ERROR(CheckListLength("starts", starts.size(), x->rank()));
  RETURN_IF_ERROR(CheckListLength("stops", stops.size(), x->rank()));
  if (q.attrs.Has("steps")) RETURN_IF_ERROR(CheckListLength("steps", steps.size(), x->rank()));
  TensorType type{x->dtype, {}};
  for (int i = 0; i < x->rank(); ++i) {
    RETURN_IF_ERROR(CheckSliceBounds(starts[i], stops[i], x->dims[i], q.symbols));
    ASSIGN_OR_RETURN(Dim extent, SlicedExtent(starts[i], stops[i], steps.empty() ? 1 : steps[i]));
    type.dims.push_back(std::move(extent));
  }
  return std::vector<Type>{std::move(type)};
}

Types Concat(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* first, ScalarTensorAt(q, 0));
  ASSIGN_OR_RETURN(const int axis, AxisOf(q, "axis", first->rank()));
  TensorType type = *first;
  for (size_t i = 1; i < q.inputs.size(); ++i) {
    ASSIGN_OR_RETURN(const TensorType* next, ScalarTensorAt(q, i));
    bool fits = next->dtype == type.dtype && next->rank() == type.rank();
    for (int d = 0; fits && d < type.rank(); ++d) {
      fits = d == axis || next->dims[d] == type.dims[d];
    }
    if (!fits) {
      return Invalid(absl::StrCat("input ", i, " (", ToString(Type(*next), q.symbols),
                                  ") does not match ", ToString(Type(*first), q.symbols),
                                  " outside axis ", axis));
    }
    ASSIGN_OR_RETURN(type.dims[axis], Add(type.dims[axis], next->dims[axis]));
  }
  return std::vector<Type>{std::move(type)};
}

Types Gather(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* data, TensorAt(q, 0));
  ASSIGN_OR_RETURN(const TensorType* indices, ScalarTensorAt(q, 1));
  if (indices->dtype != DType::kI32 && indices->dtype != DType::kI64) {
    return Invalid(absl::StrCat("indices must be i32 or i64, not ", Sv(Info(indices->dtype).name)));
  }
  ASSIGN_OR_RETURN(const int axis, AxisOf(q, "axis", data->rank()));
  TensorType type{data->dtype, {data->dims.begin(), data->dims.begin() + axis}};
  if (IsBlock(data->dtype)) {
    if (data->rank() != 2 || axis != 0) return Invalid("a block-typed table needs rank 2, axis 0");
    type.dtype = DType::kF32;
  }
  type.dims.insert(type.dims.end(), indices->dims.begin(), indices->dims.end());
  type.dims.insert(type.dims.end(), data->dims.begin() + axis + 1, data->dims.end());
  return std::vector<Type>{std::move(type)};
}

Types Iota(const ShapeQuery& q) {
  const absl::Span<const Dim> shape = q.attrs.Dims("shape");
  RETURN_IF_ERROR(AxisOf(q, "axis", static_cast<int>(shape.size())).status());
  const DType dtype = q.attrs.Type("dtype");
  if (IsBlock(dtype) || dtype == DType::kBool) return Invalid("dtype must be a number type");
  return std::vector<Type>{TensorType{dtype, {shape.begin(), shape.end()}}};
}

Types Pad(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  const absl::Span<const int64_t> lo = q.attrs.Ints("lo");
  const absl::Span<const int64_t> hi = q.attrs.Ints("hi");
  RETURN_IF_ERROR(CheckListLength("lo", lo.size(), x->rank()));
  RETURN_IF_ERROR(CheckListLength("hi", hi.size(), x->rank()));
  TensorType type = *x;
  for (int i = 0; i < x->rank(); ++i) {
    if (lo[i] < 0 || hi[i] < 0) return Invalid("lo and hi must not be negative; slice instead");
    ASSIGN_OR_RETURN(type.dims[i], Add(type.dims[i], Dim(lo[i])));
    ASSIGN_OR_RETURN(type.dims[i], Add(type.dims[i], Dim(hi[i])));
  }
  return std::vector<Type>{std::move(type)};
}

}  // namespace cuvil::ir::shape_rules
