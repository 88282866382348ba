#include "compiler/lower/expr.h"

#include <bit>

namespace cuvil::lower {

Affine Affine::Counter(size_t loops, size_t loop) {
  Affine a = Zero(loops);
  a.coefs[loop] = ir::Dim(1);
  return a;
}

absl::StatusOr<Affine> Add(const Affine& a, const Affine& b) {
  CUVIL_CHECK(a.coefs.size() == b.coefs.size(), "affine forms of two nests");
  Affine sum = a;
  ASSIGN_OR_RETURN(sum.offset, ir::Add(a.offset, b.offset));
  for (size_t i = 0; i < a.coefs.size(); ++i) {
    ASSIGN_OR_RETURN(sum.coefs[i], ir::Add(a.coefs[i], b.coefs[i]));
  }
  return sum;
}

absl::StatusOr<Affine> Scale(const Affine& a, const ir::Dim& factor) {
  Affine product = a;
  ASSIGN_OR_RETURN(product.offset, ir::Multiply(a.offset, factor));
  for (size_t i = 0; i < a.coefs.size(); ++i) {
    ASSIGN_OR_RETURN(product.coefs[i], ir::Multiply(a.coefs[i], factor));
  }
  return product;
}

ExprPtr MakeLoad(int buffer, DType dtype, Affine at) {
  auto e = std::make_shared<Expr>();
  e->kind = Expr::Kind::kLoad;
  e->dtype = dtype;
  e->buffer = buffer;
  e->at = std::move(at);
  return e;
}

ExprPtr MakeCounter(Affine at) {
  auto e = std::make_shared<Expr>();
  e->kind = Expr::Kind::kCounter;
  e->dtype = DType::kI64;
  e->at = std::move(at);
  return e;
}

ExprPtr MakeConstant(double value, DType dtype) {
  return MakeOp(
      dtype,
      [=](Builder& b, absl::Span<const kernel::Value>) { return Constant(b, value, dtype, 1); },
      {});
}

ExprPtr MakeReduction(int index, DType dtype) {
  auto e = std::make_shared<Expr>();
  e->kind = Expr::Kind::kReduction;
  e->dtype = dtype;
  e->index = index;
  return e;
}

ExprPtr MakeOp(DType dtype, ScalarCode code, std::vector<ExprPtr> args) {
  auto e = std::make_shared<Expr>();
  e->kind = Expr::Kind::kOp;
  e->dtype = dtype;
  e->code = std::move(code);
  e->args = std::move(args);
  return e;
}

DType ValueDType(const Expr& e) { return IsBlock(e.dtype) ? DType::kF32 : e.dtype; }

ExprPtr MakeCast(ExprPtr x, DType to) {
  const DType from = ValueDType(*x);
  if (from == to) return x;
  return MakeOp(
      to, [=](Builder& b, absl::Span<const kernel::Value> v) { return Convert(b, v[0], from, to); },
      {std::move(x)});
}

ExprPtr MakeBinary(ir::OpKind op, ExprPtr x, ExprPtr y) {
  const DType d = ValueDType(*x);
  CUVIL_CHECK(d == ValueDType(*y), "operands of two types");
  return MakeOp(d, CodeOf(op, {}, d, d), {std::move(x), std::move(y)});
}

ExprPtr MakeUnary(ir::OpKind op, ExprPtr x) {
  const DType d = ValueDType(*x);
  return MakeOp(d, CodeOf(op, {}, d, d), {std::move(x)});
}

}  // namespace cuvil::lower
