// Elementary functions written in kernel IR, so that every backend and the interpreter compute the
// same bits: range reduction and polynomials, no libm. Inputs and outputs are f32 values of any
// lanes.
#pragma once

#include "compiler/kernel/kir.h"

namespace cuvil::kernel {

// e^x. Relative error below 2e-7 (about 2 ulp) for x in [-87.3, 88.3]; clamped outside, so the
// result is never 0, a subnormal or infinite. NaN gives the value at the lower clamp.
Value Exp(Builder& b, Value x);

// x / (1 + e^-x).
Value Silu(Builder& b, Value x);

// tanh(x) through e^2|x|; absolute error below 2e-7.
Value Tanh(Builder& b, Value x);

// The tanh approximation of GELU: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
Value GeluTanh(Builder& b, Value x);

// Natural logarithm of x > 0 (normal numbers); relative error below 3e-7.
Value Log(Builder& b, Value x);

}  // namespace cuvil::kernel
