#include "compiler/kernel/math.h"

namespace cuvil::kernel {
namespace {

Value Const(Builder& b, Value like, double v) { return b.Float(v, b.type(like)); }

Type IntOf(Builder& b, Value x) { return {Scalar::kS32, b.type(x).lanes}; }

}  // namespace

Value Exp(Builder& b, Value x) {
  // x = n ln2 + r, |r| <= ln2/2; e^r by its Taylor polynomial of degree 7 (remainder 5e-9), ln2 in
  // two parts so that r is exact to f32.
  Value t = b.Max(x, Const(b, x, -87.3));
  t = b.Min(t, Const(b, x, 88.3));
  Value n = b.Unary(OpCode::kRound, b.Mul(t, Const(b, x, 1.4426950408889634)));
  Value r = b.Fma(n, Const(b, x, -0.693145751953125), t);
  r = b.Fma(n, Const(b, x, -1.428606820309417e-06), r);
  Value p = Const(b, x, 1.0 / 5040);
  for (const double c : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    p = b.Fma(p, r, Const(b, x, c));
  // Multiply by 2^n through the exponent field: n is in [-126, 127].
  Value bits = b.Shl(b.Add(b.Cvt(n, Scalar::kS32), b.Int(127, IntOf(b, x))), 23);
  return b.Mul(p, b.Bitcast(bits, b.type(x)));
}

Value Silu(Builder& b, Value x) { return b.Div(x, b.Add(Const(b, x, 1.0), Exp(b, b.Neg(x)))); }

Value Tanh(Builder& b, Value x) {
  // 1 - 2 / (e^2|x| + 1) loses nothing where it matters: near 0 the cubic-and-fifth series takes
  // over.
  Value a = b.Abs(x);
  Value e = Exp(b, b.Mul(a, Const(b, x, 2.0)));
  Value large = b.Sub(Const(b, x, 1.0), b.Div(Const(b, x, 2.0), b.Add(e, Const(b, x, 1.0))));
  Value s = b.Mul(a, a);
  Value p = Const(b, x, -17.0 / 315);
  for (const double c : {2.0 / 15, -1.0 / 3}) p = b.Fma(p, s, Const(b, x, c));
  Value small = b.Fma(b.Mul(p, s), a, a);
  Value y = b.Select(b.Cmp(OpCode::kCmpLt, a, Const(b, x, 0.08)), small, large);
  return b.Select(b.Cmp(OpCode::kCmpLt, x, Const(b, x, 0.0)), b.Neg(y), y);
}

Value GeluTanh(Builder& b, Value x) {
  Value inner = b.Fma(b.Mul(b.Mul(x, x), x), Const(b, x, 0.044715), x);
  Value t = Tanh(b, b.Mul(inner, Const(b, x, 0.7978845608028654)));
  return b.Mul(b.Mul(x, Const(b, x, 0.5)), b.Add(t, Const(b, x, 1.0)));
}

Value Log(Builder& b, Value x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m-1)/(m+1)).
  const Type ti = IntOf(b, x);
  Value bits = b.Bitcast(x, ti);
  Value shifted = b.Sub(bits, b.Int(0x3f3504f3, ti));
  Value e = b.Shr(shifted, 23);
  Value m = b.Bitcast(b.Sub(bits, b.Shl(e, 23)), b.type(x));
  Value one = Const(b, x, 1.0);
  Value s = b.Div(b.Sub(m, one), b.Add(m, one));
  Value z = b.Mul(s, s);
  Value p = Const(b, x, 2.0 / 11);
  for (const double c : {2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0}) p = b.Fma(p, z, Const(b, x, c));
  return b.Fma(b.Cvt(e, Scalar::kF32), Const(b, x, 0.6931471805599453), b.Mul(p, s));
}

}  // namespace cuvil::kernel
