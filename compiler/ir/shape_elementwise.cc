#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ir/shape_rules.h"

namespace cuvil::ir::shape_rules {
namespace {

enum class Class { kNumeric, kFloat, kLogical };

bool Accepts(Class wanted, DType dtype) {
  switch (wanted) {
    case Class::kNumeric:
      return dtype != DType::kBool;
    case Class::kFloat:
      return Info(dtype).is_float;
    case Class::kLogical:
      return !Info(dtype).is_float;
  }
  return false;
}

absl::Status CheckClass(Class wanted, DType dtype) {
  if (Accepts(wanted, dtype)) return absl::OkStatus();
  const char* want = wanted == Class::kFloat     ? "a float type"
                     : wanted == Class::kLogical ? "bool or an integer type"
                                                 : "a number type";
  return Invalid(absl::StrCat("needs ", want, ", not ", Sv(Info(dtype).name), "; insert a cast"));
}

Types Unary(const ShapeQuery& q, Class wanted) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  RETURN_IF_ERROR(CheckClass(wanted, x->dtype));
  return std::vector<Type>{*x};
}

absl::StatusOr<TensorType> BroadcastPair(const ShapeQuery& q, size_t first) {
  ASSIGN_OR_RETURN(const TensorType* a, ScalarTensorAt(q, first));
  ASSIGN_OR_RETURN(const TensorType* b, ScalarTensorAt(q, first + 1));
  if (a->dtype != b->dtype) {
    return Invalid(absl::StrCat("operands are ", Sv(Info(a->dtype).name), " and ",
                                Sv(Info(b->dtype).name), "; insert a cast"));
  }
  ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(a->dims, b->dims, q.symbols));
  return TensorType{a->dtype, std::move(dims)};
}

Types Binary(const ShapeQuery& q, Class wanted) {
  ASSIGN_OR_RETURN(TensorType type, BroadcastPair(q, 0));
  RETURN_IF_ERROR(CheckClass(wanted, type.dtype));
  return std::vector<Type>{std::move(type)};
}

}  // namespace

absl::Status Invalid(std::string_view sentence) { return absl::InvalidArgumentError(Sv(sentence)); }

absl::StatusOr<const TensorType*> TensorAt(const ShapeQuery& q, size_t index) {
  const TensorType* tensor = AsTensor(*q.inputs[index]);
  if (tensor == nullptr) {
    return Invalid(absl::StrCat("input ", index, " must be a tensor, not ",
                                ToString(*q.inputs[index], q.symbols)));
  }
  return tensor;
}

absl::StatusOr<const TensorType*> ScalarTensorAt(const ShapeQuery& q, size_t index) {
  ASSIGN_OR_RETURN(const TensorType* tensor, TensorAt(q, index));
  if (IsBlock(tensor->dtype)) {
    return Invalid(absl::StrCat("input ", index, " is block-typed (", Sv(Info(tensor->dtype).name),
                                "); dequantise it first"));
  }
  return tensor;
}

absl::StatusOr<std::vector<Dim>> Broadcast(absl::Span<const Dim> a, absl::Span<const Dim> b,
                                           absl::Span<const Symbol> symbols) {
  const size_t rank = std::max(a.size(), b.size());
  std::vector<Dim> dims(rank);
  for (size_t i = 0; i < rank; ++i) {  // from the last dim
    const Dim x = i < a.size() ? a[a.size() - 1 - i] : Dim(1);
    const Dim y = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
    if (x != y && !x.is(1) && !y.is(1)) {
      return Invalid(absl::StrCat("extents ", ToString(x, symbols), " and ", ToString(y, symbols),
                                  " do not broadcast"));
    }
    dims[rank - 1 - i] = x.is(1) ? y : x;
  }
  return dims;
}

absl::StatusOr<int> AxisOf(const ShapeQuery& q, std::string_view attr, int rank) {
  const int64_t axis = q.attrs.Int(attr);
  if (axis < 0 || axis >= rank) {
    return Invalid(absl::StrCat(Sv(attr), " ", axis, " is outside 0..", rank - 1));
  }
  return static_cast<int>(axis);
}

Types UnaryNumeric(const ShapeQuery& q) { return Unary(q, Class::kNumeric); }
Types UnaryFloat(const ShapeQuery& q) { return Unary(q, Class::kFloat); }
Types UnaryLogical(const ShapeQuery& q) { return Unary(q, Class::kLogical); }
Types BinaryNumeric(const ShapeQuery& q) { return Binary(q, Class::kNumeric); }
Types BinaryFloat(const ShapeQuery& q) { return Binary(q, Class::kFloat); }
Types BinaryLogical(const ShapeQuery& q) { return Binary(q, Class::kLogical); }

Types Compare(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(TensorType type, BroadcastPair(q, 0));
  type.dtype = DType::kBool;
  return std::vector<Type>{std::move(type)};
}

Types Select(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* cond, ScalarTensorAt(q, 0));
  if (cond->dtype != DType::kBool) {
    return Invalid(absl::StrCat("condition must be bool, not ", Sv(Info(cond->dtype).name)));
  }
  ASSIGN_OR_RETURN(TensorType type, BroadcastPair(q, 1));
  ASSIGN_OR_RETURN(type.dims, Broadcast(cond->dims, type.dims, q.symbols));
  return std::vector<Type>{std::move(type)};
}

Types Cast(const ShapeQuery& q) {
  ASSIGN_OR_RETURN(const TensorType* x, ScalarTensorAt(q, 0));
  const DType to = q.attrs.Type("to");
  if (IsBlock(to)) return Invalid("cannot cast to a block type; quantise instead");
  return std::vector<Type>{TensorType{to, x->dims}};
}

}  // namespace cuvil::ir::shape_rules
