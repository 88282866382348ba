#include "compiler/kernel/math_more.h"

#include <initializer_list>
#include <limits>

namespace cuvil::kernel::ieee {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2High = 0.6931471803691238;  // 32 significant bits: n * it is exact
constexpr double kLn2Low = 1.9082149292705877e-10;
constexpr double kLog2E = 1.4426950408889634074;

Value Const(Builder& b, Value like, double v) { return b.Float(v, b.type(like)); }
Type With(Builder& b, Value like, Scalar s) { return {s, b.type(like).lanes}; }
bool Wide(Builder& b, Value x) { return b.type(x).scalar == Scalar::kF64; }
Value IsNan(Builder& b, Value x) { return b.Cmp(OpCode::kCmpNe, x, x); }
Value Less(Builder& b, Value x, Value y) { return b.Cmp(OpCode::kCmpLt, x, y); }
Value Equal(Builder& b, Value x, double y) { return b.Cmp(OpCode::kCmpEq, x, Const(b, x, y)); }
Value KeepNan(Builder& b, Value x, Value y) { return b.Select(IsNan(b, x), x, y); }

// Horner, highest coefficient first.
Value Poly(Builder& b, Value x, std::initializer_list<double> c) {
  Value p;
  for (const double k : c) p = p.valid() ? b.Fma(p, x, Const(b, x, k)) : Const(b, x, k);
  return p;
}

// The f64 result of f at x, rounded to x's type.
template <typename F>
Value ThroughF64(Builder& b, Value x, F f) {
  if (Wide(b, x)) return f(x);
  return b.Cvt(f(b.Cvt(x, Scalar::kF64)), Scalar::kF32);
}

// 2^n for a whole float n inside the type's normal exponents.
Value PowerOfTwo(Builder& b, Value n) {
  Value i = b.Cvt(n, Scalar::kS32);
  if (!Wide(b, n)) {
    return b.Bitcast(b.Shl(b.Add(i, b.Int(127, b.type(i))), 23), b.type(n));
  }
  Value wide = b.Cvt(i, Scalar::kS64);
  return b.Bitcast(b.Shl(b.Add(wide, b.Int(1023, b.type(wide))), 52), b.type(n));
}

// p * 2^n in two steps, so that the product may overflow or become subnormal.
Value Scale(Builder& b, Value p, Value n) {
  Value half = b.Unary(OpCode::kFloor, b.Mul(n, Const(b, n, 0.5)));
  return b.Mul(b.Mul(p, PowerOfTwo(b, half)), PowerOfTwo(b, b.Sub(n, half)));
}

// e^r - 1 for |r| <= 0.35: r + r^2 * Taylor. The remainder is below 2^-53 (f64), 2^-26 (f32).
Value ExpTail(Builder& b, Value r) {
  Value p = Wide(b, r) ? Poly(b, r,
                              {1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800,
                               1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                               1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5})
                       : Poly(b, r, {1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5});
  return b.Fma(b.Mul(r, r), p, r);
}

struct Reduced {
  Value n, r;  // x = n ln 2 + r
};

Reduced ReduceExp(Builder& b, Value t) {
  Value n = b.Unary(OpCode::kRound, b.Mul(t, Const(b, t, kLog2E)));
  const bool wide = Wide(b, t);
  // The f32 parts: 0x1.62e4p-1 has 15 bits, so that n * it is exact.
  Value r = b.Fma(n, Const(b, t, wide ? -kLn2High : -0.693145751953125), t);
  return {n, b.Fma(n, Const(b, t, wide ? -kLn2Low : -1.428606820309417e-06), r)};
}

Value Clamp(Builder& b, Value x, double low, double high) {
  return b.Min(b.Max(x, Const(b, x, low)), Const(b, x, high));
}

Value LogF64(Builder& b, Value x, double scale, bool exponent_exact) {
  // Subnormals are lifted into the normal range; x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  Value tiny = Less(b, x, Const(b, x, std::numeric_limits<double>::min()));
  Value lifted = b.Select(tiny, b.Mul(x, Const(b, x, 0x1p54)), x);
  const Type ti = With(b, x, Scalar::kS64);
  Value bits = b.Bitcast(lifted, ti);
  Value exponent = b.Shr(b.Sub(bits, b.Int(0x3fe6a09e667f3bcd, ti)), 52);
  Value m = b.Bitcast(b.Sub(bits, b.Shl(exponent, 52)), b.type(x));
  Value e = b.Cvt(b.Cvt(exponent, Scalar::kS32), Scalar::kF64);
  e = b.Sub(e, b.Select(tiny, Const(b, x, 54), Const(b, x, 0)));
  // log m = 2 atanh(s), s = (m - 1) / (m + 1); m - 1 is exact.
  Value s = b.Div(b.Sub(m, Const(b, x, 1)), b.Add(m, Const(b, x, 1)));
  Value z = b.Mul(s, s);
  Value p = Poly(b, z,
                 {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                  2.0 / 7, 2.0 / 5, 2.0 / 3});
  Value tail = b.Mul(b.Mul(s, z), p);
  Value y;
  if (exponent_exact) {
    y = b.Fma(b.Add(b.Add(s, s), tail), Const(b, x, scale), e);
  } else {
    tail = b.Fma(e, Const(b, x, kLn2Low), tail);
    y = b.Fma(e, Const(b, x, kLn2High), b.Add(b.Add(s, s), tail));
  }
  y = b.Select(Equal(b, x, 0), Const(b, x, -kInf), y);
  y = b.Select(Equal(b, x, kInf), x, y);
  y = b.Select(Less(b, x, Const(b, x, 0)), Const(b, x, kNan), y);
  return KeepNan(b, x, y);
}

// sin(x + shift * pi / 2).
Value SinF64(Builder& b, Value x, int shift) {
  // pi/2 in three parts of 53 bits; the first step is exact.
  Value n = b.Unary(OpCode::kRound, b.Mul(x, Const(b, x, 0.63661977236758134308)));
  Value r = x;
  for (const double part : {-1.5707963267948966, -6.123233995736766e-17, 1.497384905065873e-33}) {
    r = b.Fma(n, Const(b, x, part), r);
  }
  r = Clamp(b, r, -2, 2);
  Value z = b.Mul(r, r);
  Value sin = Poly(b, z,
                   {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                    1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6});
  sin = b.Fma(b.Mul(r, z), sin, r);
  Value cos = Poly(b, z,
                   {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200,
                    1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5});
  cos = b.Fma(z, cos, Const(b, x, 1));
  // The quadrant as a float in 0..3.
  Value k = b.Add(n, Const(b, x, shift));
  Value q = b.Sub(k, b.Mul(b.Unary(OpCode::kFloor, b.Mul(k, Const(b, x, 0.25))), Const(b, x, 4)));
  Value odd = b.Or(Equal(b, q, 1), Equal(b, q, 3));
  Value y = b.Select(odd, cos, sin);
  y = b.Select(Less(b, q, Const(b, x, 2)), y, b.Neg(y));
  return b.Select(Less(b, b.Abs(x), Const(b, x, 0x1p50)), y, b.Sub(x, x));
}

Value TanhF64(Builder& b, Value x) {
  // t = e^2|x| - 1 without cancellation, then t / (t + 2); 1 beyond 20.
  Value a = b.Min(b.Mul(b.Abs(x), Const(b, x, 2)), Const(b, x, 40));
  const Reduced reduced = ReduceExp(b, a);
  Value power = PowerOfTwo(b, reduced.n);
  Value t = b.Fma(ExpTail(b, reduced.r), power, b.Sub(power, Const(b, x, 1)));
  Value y = b.Div(t, b.Add(t, Const(b, x, 2)));
  return KeepNan(b, x, b.Select(Less(b, x, Const(b, x, 0)), b.Neg(y), y));
}

Value ErfF64(Builder& b, Value x) {
  // |x| < 1: x p(x^2). Else 1 - e^-x^2 q(t), t = (x - 3) / (x + 3), q a fit of e^x^2 erfc x on [1,
  // 6]. Both fits have errors below 3e-21.
  Value z = b.Mul(x, x);
  Value small =
      b.Mul(x, Poly(b, z,
                    {-4.23094582429533782e-12, 8.70904512905310669e-11, -1.21645600572834501e-9,
                     1.4792401209404813e-8, -1.63646421581676153e-7, 1.64620454414684189e-6,
                     -0.0000149256475675193321, 0.000120553329028887354, -0.00085483270219348296,
                     0.00522397762542329831, -0.0268661706451298408, 0.112837916709551202,
                     -0.376126389031837524, 1.12837916709551257}));
  Value a = b.Min(b.Abs(x), Const(b, x, 6));
  Value t = b.Div(b.Sub(a, Const(b, x, 3)), b.Add(a, Const(b, x, 3)));
  Value q = Poly(
      b, t,
      {3.09971112486119126e-8, 2.10069323179454632e-8, -2.29608366401726556e-7,
       -2.9026520043928663e-7, 1.25192611880226668e-6, 2.11928344605311132e-6,
       -7.97811938593217197e-6, -0.0000128604218312008306, 0.0000640565573700285709,
       0.0000452552941212963236, -0.000597061948641696309, 0.000707746439062207063,
       0.00426913633283938682, -0.0243924993186741163, 0.0716658371979782533, -0.150115936500777194,
       0.245603801712330879, -0.326233560043037228, 0.17900115118138995});
  const Reduced reduced = ReduceExp(b, b.Neg(b.Mul(a, a)));
  Value e = b.Mul(b.Add(ExpTail(b, reduced.r), Const(b, x, 1)), PowerOfTwo(b, reduced.n));
  Value large = b.Fma(b.Neg(e), q, Const(b, x, 1));
  large = b.Select(Less(b, x, Const(b, x, 0)), b.Neg(large), large);
  return KeepNan(b, x, b.Select(Less(b, b.Abs(x), Const(b, x, 1)), small, large));
}

Value PowF64(Builder& b, Value a, Value x) {
  const auto whole = [&](Value v) { return b.Cmp(OpCode::kCmpEq, b.Unary(OpCode::kTrunc, v), v); };
  Value one = Const(b, a, 1), zero = Const(b, a, 0);
  Value y = Exp(b, b.Mul(x, LogF64(b, b.Abs(a), 1, false)));
  // |a| = 1 with an infinite exponent.
  y = b.Select(b.And(Equal(b, b.Abs(a), 1), Equal(b, b.Abs(x), kInf)), one, y);
  Value integer = whole(x);
  Value even = whole(b.Mul(x, Const(b, x, 0.5)));
  const Type ti = With(b, a, Scalar::kS64);
  Value negative = b.Cmp(OpCode::kCmpLt, b.Bitcast(a, ti), b.Int(0, ti));  // -0 too
  Value odd = b.And(integer, b.Cmp(OpCode::kCmpEq, b.Select(even, one, zero), zero));
  y = b.Select(b.And(negative, odd), b.Neg(y), y);
  // A negative base with a fractional exponent has no real power, except -inf and -0.
  Value finite = b.And(Less(b, a, zero), Less(b, Const(b, a, -kInf), a));
  Value fraction = b.Cmp(OpCode::kCmpEq, b.Select(integer, one, zero), zero);
  y = b.Select(b.And(finite, fraction), Const(b, a, kNan), y);
  y = KeepNan(b, a, KeepNan(b, x, y));
  return b.Select(b.Or(Equal(b, x, 0), Equal(b, a, 1)), one, y);
}

Value ModF64(Builder& b, Value a, Value x) {
  Value q = b.Unary(OpCode::kTrunc, b.Div(a, x));
  Value r = b.Fma(b.Neg(q), x, a);
  // A quotient rounded up to the next whole number leaves a remainder of the wrong sign.
  Value zero = Const(b, a, 0);
  Value past =
      b.Or(b.And(Less(b, zero, a), Less(b, r, zero)), b.And(Less(b, a, zero), Less(b, zero, r)));
  r = b.Select(past, b.Add(r, b.Select(Less(b, r, zero), b.Abs(x), b.Neg(b.Abs(x)))), r);
  r = b.Select(b.And(Equal(b, b.Abs(x), kInf), Less(b, b.Abs(a), Const(b, a, kInf))), a, r);
  Value opposed =
      b.Or(b.And(Less(b, r, zero), Less(b, zero, x)), b.And(Less(b, zero, r), Less(b, x, zero)));
  return b.Select(opposed, b.Add(r, x), r);
}

}  // namespace

Value Exp(Builder& b, Value x) {
  const bool wide = Wide(b, x);
  const Reduced reduced = ReduceExp(b, Clamp(b, x, wide ? -746 : -104.5, wide ? 710 : 89));
  Value p = b.Add(ExpTail(b, reduced.r), Const(b, x, 1));
  return KeepNan(b, x, Scale(b, p, reduced.n));
}

Value Exp2(Builder& b, Value x) {
  const bool wide = Wide(b, x);
  Value t = Clamp(b, x, wide ? -1080 : -151, wide ? 1025 : 129);
  Value n = b.Unary(OpCode::kRound, t);
  Value p =
      b.Add(ExpTail(b, b.Mul(b.Sub(t, n), Const(b, x, 0.69314718055994530942))), Const(b, x, 1));
  return KeepNan(b, x, Scale(b, p, n));
}

Value Log(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) { return LogF64(b, v, 1, false); });
}

Value Log2(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) { return LogF64(b, v, kLog2E, true); });
}

Value Sin(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) { return SinF64(b, v, 0); });
}

Value Cos(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) { return SinF64(b, v, 1); });
}

Value Tanh(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) { return TanhF64(b, v); });
}

Value Erf(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) { return ErfF64(b, v); });
}

Value Sigmoid(Builder& b, Value x) {
  Value one = Const(b, x, 1);
  return b.Div(one, b.Add(one, Exp(b, b.Neg(x))));
}

Value Silu(Builder& b, Value x) { return b.Div(x, b.Add(Const(b, x, 1), Exp(b, b.Neg(x)))); }

Value Gelu(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) {
    Value e = ErfF64(b, b.Mul(v, Const(b, v, 0.70710678118654752440)));
    return b.Mul(b.Mul(v, Const(b, v, 0.5)), b.Add(e, Const(b, v, 1)));
  });
}

Value GeluTanh(Builder& b, Value x) {
  return ThroughF64(b, x, [&](Value v) {
    Value inner = b.Fma(b.Mul(b.Mul(v, v), v), Const(b, v, 0.044715), v);
    Value t = TanhF64(b, b.Mul(inner, Const(b, v, 0.79788456080286535588)));
    return b.Mul(b.Mul(v, Const(b, v, 0.5)), b.Add(t, Const(b, v, 1)));
  });
}

Value Pow(Builder& b, Value a, Value x) {
  if (Wide(b, a)) return PowF64(b, a, x);
  return b.Cvt(PowF64(b, b.Cvt(a, Scalar::kF64), b.Cvt(x, Scalar::kF64)), Scalar::kF32);
}

Value Mod(Builder& b, Value a, Value x) {
  if (Wide(b, a)) return ModF64(b, a, x);
  return b.Cvt(ModF64(b, b.Cvt(a, Scalar::kF64), b.Cvt(x, Scalar::kF64)), Scalar::kF32);
}

}  // namespace cuvil::kernel::ieee
