// Elementary functions with every special value as IEEE 754 and libm have it: NaN in gives NaN out,
// infinities and zeros map to their limits, results overflow to infinity and underflow through the
// subnormals. Inputs and results are f32 or f64 of any lanes; nothing traps or converts out of
// range. math.h has the fast f32 versions that the templates use, which clamp instead.
//
// Bounds are against the exact value, in units of the last place (ulp) of the result type, measured
// over random and edge inputs by math_more_test.cc. Where a line says "through f64", the f32
// version computes in f64 and rounds once, so it is within 0.51 ulp.
#pragma once

#include "compiler/kernel/kir.h"

namespace cuvil::kernel::ieee {

Value Exp(Builder& b, Value x);       // f32: 2 ulp; f64: 2 ulp
Value Exp2(Builder& b, Value x);      // f32: 2 ulp; f64: 2 ulp
Value Log(Builder& b, Value x);       // through f64; f64: 2 ulp
Value Log2(Builder& b, Value x);      // through f64, exact for powers of two; f64: 3 ulp
Value Tanh(Builder& b, Value x);      // through f64; f64: 4 ulp
Value Erf(Builder& b, Value x);       // through f64; f64: absolute 3e-16
Value Sigmoid(Builder& b, Value x);   // f32: 4 ulp; f64: 4 ulp
Value Silu(Builder& b, Value x);      // f32: 5 ulp; f64: 5 ulp
Value Gelu(Builder& b, Value x);      // through f64; f64: absolute 3e-16 |x|
Value GeluTanh(Builder& b, Value x);  // likewise

// Through f64; absolute error 4e-16 for |x| < 2^30, growing to 1e-10 at 2^50; 0 beyond, NaN for
// infinities (2^50 is where the quadrant itself is no longer known).
Value Sin(Builder& b, Value x);
Value Cos(Builder& b, Value x);

// a^x. Through f64 for f32; f64: relative error 3e-13 (an exponent of up to 745 times the error of
// the logarithm).
Value Pow(Builder& b, Value a, Value x);

// Remainder of a / x with the sign of x, for |a / x| < 2^52: exact in f64, correctly rounded in
// f32. Larger quotients give a value of the right sign below |x|, or NaN.
Value Mod(Builder& b, Value a, Value x);

}  // namespace cuvil::kernel::ieee
