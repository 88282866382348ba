#include "compiler/lower/scalar_code.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "compiler/kernel/math_more.h"

namespace cuvil::lower {
namespace {

using ir::OpKind;
using kernel::OpCode;
using kernel::Type;
using kernel::Value;

constexpr int64_t kLowest64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest64 = std::numeric_limits<int64_t>::max();

bool IsFloatType(DType d) { return Info(d).is_float; }
bool IsSignedType(DType d) { return d >= DType::kI8 && d <= DType::kI64; }

Value IntLike(Builder& b, Value like, int64_t v) { return b.Int(v, b.type(like)); }
Value FloatLike(Builder& b, Value like, double v) { return b.Float(v, b.type(like)); }

Value ZeroLike(Builder& b, Value like) {
  return kernel::IsFloat(b.type(like).scalar) ? FloatLike(b, like, 0) : IntLike(b, like, 0);
}

Value Not(Builder& b, Value cond) { return b.Xor(cond, b.Int(1, b.type(cond))); }
Value IsNan(Builder& b, Value x) { return b.Cmp(OpCode::kCmpNe, x, x); }
Value IsZero(Builder& b, Value x) { return b.Cmp(OpCode::kCmpEq, x, ZeroLike(b, x)); }
// Orders u64 held as s64 like unsigned numbers.
Value FlipTop(Builder& b, Value x) { return b.Xor(x, IntLike(b, x, kLowest64)); }

// ---- Division ----

Value DivideU64(Builder& b, Value a, Value d) {
  Value top = b.Cmp(OpCode::kCmpLt, d, IntLike(b, d, 0));
  Value one = IntLike(b, d, 1), zero = IntLike(b, d, 0);
  Value safe = b.Select(b.Or(top, IsZero(b, d)), one, d);
  // Halving the dividend makes it positive; the quotient is then at most one too small.
  Value half = b.And(b.Shr(a, 1), IntLike(b, a, kHighest64));
  Value q = b.Shl(b.Div(half, safe), 1);
  Value rest = b.Sub(a, b.Mul(q, safe));
  q = b.Add(q, b.Select(Less(b, rest, safe, DType::kU64), zero, one));
  Value by_top = b.Select(Less(b, a, d, DType::kU64), zero, one);
  return b.Select(IsZero(b, d), zero, b.Select(top, by_top, q));
}

// Rounds to zero; x / 0 = 0 and lowest / -1 wraps.
Value DivideInt(Builder& b, Value a, Value d, DType dtype) {
  if (dtype == DType::kU64) return DivideU64(b, a, d);
  Value zero = IntLike(b, d, 0), one = IntLike(b, d, 1);
  Value by_zero = IsZero(b, d);
  if (!IsSignedType(dtype)) {
    return b.Select(by_zero, zero, b.Div(a, b.Select(by_zero, one, d)));
  }
  Value minus = b.Cmp(OpCode::kCmpEq, d, IntLike(b, d, -1));
  Value q = b.Div(a, b.Select(b.Or(by_zero, minus), one, d));
  return b.Select(by_zero, zero, b.Select(minus, b.Neg(a), q));
}

Value ModInt(Builder& b, Value a, Value d, DType dtype) {
  Value rest = b.Sub(a, b.Mul(DivideInt(b, a, d, dtype), d));
  Value zero = IntLike(b, d, 0);
  if (IsSignedType(dtype)) {
    Value opposed = b.Cmp(OpCode::kCmpLt, b.Xor(rest, d), zero);
    rest = b.Select(b.And(opposed, Not(b, IsZero(b, rest))), b.Add(rest, d), rest);
  }
  return b.Select(IsZero(b, d), zero, rest);
}

// ---- Conversion ----

int Bits(DType d) { return Info(d).bytes * 8; }

Value FloatToInt64(Builder& b, Value x, bool is_signed) {
  Value two63 = FloatLike(b, x, 0x1p63);
  Value high = b.Cmp(OpCode::kCmpLe, two63, x);
  Value low = is_signed ? b.Cmp(OpCode::kCmpLt, x, FloatLike(b, x, -0x1p63))
                        : b.Cmp(OpCode::kCmpLe, x, FloatLike(b, x, 0));
  Value in_range = Not(b, b.Or(IsNan(b, x), b.Or(high, low)));
  Value r = b.Cvt(b.Select(in_range, x, FloatLike(b, x, 0)), Scalar::kS64);
  if (is_signed) {
    r = b.Select(high, IntLike(b, r, kHighest64), r);
    return b.Select(low, IntLike(b, r, kLowest64), r);
  }
  Value over = b.Cmp(OpCode::kCmpLe, FloatLike(b, x, 0x1p64), x);
  Value upper = b.Select(b.And(high, Not(b, over)), b.Sub(x, two63), FloatLike(b, x, 0));
  r = b.Select(high, FlipTop(b, b.Cvt(upper, Scalar::kS64)), r);
  return b.Select(over, IntLike(b, r, -1), r);
}

// Truncates and saturates; NaN gives 0.
Value FloatToInt(Builder& b, Value v, DType to) {
  Value x = b.Cvt(v, Scalar::kF64);
  if (Bits(to) == 64) return FloatToInt64(b, x, to == DType::kI64);
  const double low = IsSignedType(to) ? -std::ldexp(1.0, Bits(to) - 1) : 0;
  const double high = std::ldexp(1.0, IsSignedType(to) ? Bits(to) - 1 : Bits(to)) - 1;
  x = b.Select(IsNan(b, x), FloatLike(b, x, 0), x);
  x = b.Min(b.Max(x, FloatLike(b, x, low)), FloatLike(b, x, high));
  if (to == DType::kU32) return b.Cvt(x, Scalar::kU32);
  return b.Cvt(b.Cvt(x, Scalar::kS32), ComputeScalar(to));
}

Value U64ToF64(Builder& b, Value v) {
  Value high = b.And(b.Shr(v, 32), IntLike(b, v, 0xffffffff));
  Value low = b.And(v, IntLike(b, v, 0xffffffff));
  Value h = b.Cvt(high, Scalar::kF64);
  return b.Add(b.Mul(h, FloatLike(b, h, 0x1p32)), b.Cvt(low, Scalar::kF64));
}

Value ToFloat(Builder& b, Value v, DType from, DType to) {
  if (from == DType::kBool) v = b.Cvt(v, Scalar::kS32);
  if (from == DType::kU64) v = U64ToF64(b, v);
  return RoundTo(b, b.Cvt(v, ComputeScalar(to)), to);
}

// ---- Ops ----

Value UnaryInt(Builder& b, OpKind op, Value x, DType d) {
  const bool is_signed = IsSignedType(d);
  Value zero = IntLike(b, x, 0);
  switch (op) {
    case OpKind::kNeg:
      return b.Neg(x);
    case OpKind::kAbs:
      return is_signed ? b.Select(Less(b, x, zero, d), b.Neg(x), x) : x;
    case OpKind::kSign: {
      Value y = b.Select(Less(b, zero, x, d), IntLike(b, x, 1), zero);
      return is_signed ? b.Select(Less(b, x, zero, d), IntLike(b, x, -1), y) : y;
    }
    case OpKind::kRelu:
      return is_signed ? b.Select(Less(b, x, zero, d), zero, x) : x;
    case OpKind::kNot:
      return b.Xor(x, IntLike(b, x, -1));
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
}

Value UnaryFloat(Builder& b, OpKind op, Value x) {
  const auto less = [&](double bound) { return b.Cmp(OpCode::kCmpLt, x, FloatLike(b, x, bound)); };
  switch (op) {
    case OpKind::kNeg:
      return b.Neg(x);
    case OpKind::kAbs:
      return b.Abs(x);
    case OpKind::kSign: {
      Value positive = b.Cmp(OpCode::kCmpLt, FloatLike(b, x, 0), x);
      Value y = b.Select(positive, FloatLike(b, x, 1), x);  // zero and NaN stay
      return b.Select(less(0), FloatLike(b, x, -1), y);
    }
    case OpKind::kRelu:
      return b.Select(less(0), FloatLike(b, x, 0), x);
    case OpKind::kExp:
      return kernel::ieee::Exp(b, x);
    case OpKind::kExp2:
      return kernel::ieee::Exp2(b, x);
    case OpKind::kLog:
      return kernel::ieee::Log(b, x);
    case OpKind::kLog2:
      return kernel::ieee::Log2(b, x);
    case OpKind::kSqrt:
      return b.Sqrt(x);
    case OpKind::kRsqrt:
      return b.Div(FloatLike(b, x, 1), b.Sqrt(x));
    case OpKind::kRecip:
      return b.Div(FloatLike(b, x, 1), x);
    case OpKind::kSin:
      return kernel::ieee::Sin(b, x);
    case OpKind::kCos:
      return kernel::ieee::Cos(b, x);
    case OpKind::kTanh:
      return kernel::ieee::Tanh(b, x);
    case OpKind::kErf:
      return kernel::ieee::Erf(b, x);
    case OpKind::kSigmoid:
      return kernel::ieee::Sigmoid(b, x);
    case OpKind::kSilu:
      return kernel::ieee::Silu(b, x);
    case OpKind::kGelu:
      return kernel::ieee::Gelu(b, x);
    case OpKind::kGeluTanh:
      return kernel::ieee::GeluTanh(b, x);
    case OpKind::kFloor:
      return b.Unary(OpCode::kFloor, x);
    case OpKind::kCeil:
      return b.Unary(OpCode::kCeil, x);
    case OpKind::kRound:
      return b.Unary(OpCode::kRound, x);
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
}

Value BinaryCode(Builder& b, OpKind op, Value x, Value y, DType d) {
  const bool is_float = IsFloatType(d);
  switch (op) {
    case OpKind::kAdd:
      return b.Add(x, y);
    case OpKind::kSub:
      return b.Sub(x, y);
    case OpKind::kMul:
      return b.Mul(x, y);
    case OpKind::kDiv:
      return is_float ? b.Div(x, y) : DivideInt(b, x, y, d);
    case OpKind::kMod:
      return is_float ? kernel::ieee::Mod(b, x, y) : ModInt(b, x, y, d);
    case OpKind::kPow:
      return kernel::ieee::Pow(b, x, y);
    case OpKind::kMin:
      return Smaller(b, x, y, d);
    case OpKind::kMax:
      return Larger(b, x, y, d);
    case OpKind::kAnd:
      return b.And(x, y);
    case OpKind::kOr:
      return b.Or(x, y);
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
}

Value CompareCode(Builder& b, OpKind op, Value x, Value y, DType d) {
  if (d == DType::kBool) {  // kernel IR compares numbers only
    x = b.Cvt(x, Scalar::kU8);
    y = b.Cvt(y, Scalar::kU8);
  }
  if (d == DType::kU64) {
    x = FlipTop(b, x);
    y = FlipTop(b, y);
  }
  switch (op) {
    case OpKind::kEq:
      return b.Cmp(OpCode::kCmpEq, x, y);
    case OpKind::kNe:
      return b.Cmp(OpCode::kCmpNe, x, y);
    case OpKind::kLt:
      return b.Cmp(OpCode::kCmpLt, x, y);
    case OpKind::kLe:
      return b.Cmp(OpCode::kCmpLe, x, y);
    case OpKind::kGt:
      return b.Cmp(OpCode::kCmpLt, y, x);
    case OpKind::kGe:
      return b.Cmp(OpCode::kCmpLe, y, x);
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
}

Value ClampCode(Builder& b, Value x, double min, double max, DType d) {
  const int lanes = b.type(x).lanes;
  const bool whole = !IsFloatType(d);
  // Integer bounds tighten to the nearest whole number inside. Comparisons keep NaN.
  const DType held = whole || d == DType::kF64 ? d : DType::kF32;
  Value low = Constant(b, whole ? std::ceil(min) : min, held, lanes);
  Value high = Constant(b, whole ? std::floor(max) : max, held, lanes);
  x = b.Select(Less(b, x, low, d), low, x);
  return b.Select(Less(b, high, x, d), high, x);
}

bool IsCompare(OpKind op) { return op >= OpKind::kEq && op <= OpKind::kGe; }
bool IsUnary(OpKind op) { return op <= OpKind::kNot; }

// The value that `cast` from f64 gives, as bits.
uint64_t IntegerBits(double v, DType dtype) {
  if (std::isnan(v)) return 0;
  if (dtype == DType::kU64) {
    return v <= 0 ? 0 : v >= 0x1p64 ? ~uint64_t{0} : static_cast<uint64_t>(v);
  }
  if (dtype == DType::kI64) {
    if (v >= 0x1p63) return kHighest64;
    return static_cast<uint64_t>(v <= -0x1p63 ? kLowest64 : static_cast<int64_t>(v));
  }
  const double low = IsSignedType(dtype) ? -std::ldexp(1.0, Bits(dtype) - 1) : 0;
  const double high = std::ldexp(1.0, IsSignedType(dtype) ? Bits(dtype) - 1 : Bits(dtype)) - 1;
  return static_cast<uint64_t>(static_cast<int64_t>(std::min(std::max(v, low), high)));
}

}  // namespace

Scalar ComputeScalar(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Scalar::kI1;
    case DType::kI8:
      return Scalar::kS8;
    case DType::kI16:
      return Scalar::kS16;
    case DType::kI32:
      return Scalar::kS32;
    case DType::kI64:
    case DType::kU64:
      return Scalar::kS64;
    case DType::kU8:
      return Scalar::kU8;
    case DType::kU16:
      return Scalar::kU16;
    case DType::kU32:
      return Scalar::kU32;
    case DType::kF64:
      return Scalar::kF64;
    default:
      return Scalar::kF32;
  }
}

Scalar MemoryScalar(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Scalar::kU8;
    case DType::kF16:
      return Scalar::kF16;
    case DType::kBf16:
      return Scalar::kBf16;
    default:
      return ComputeScalar(dtype);
  }
}

Value Less(Builder& b, Value x, Value y, DType dtype) {
  if (dtype == DType::kU64) return b.Cmp(OpCode::kCmpLt, FlipTop(b, x), FlipTop(b, y));
  return b.Cmp(OpCode::kCmpLt, x, y);
}

Value Smaller(Builder& b, Value x, Value y, DType dtype) {
  Value r = b.Select(Less(b, y, x, dtype), y, x);
  if (!IsFloatType(dtype)) return r;
  return b.Select(IsNan(b, x), x, b.Select(IsNan(b, y), y, r));
}

Value Larger(Builder& b, Value x, Value y, DType dtype) {
  Value r = b.Select(Less(b, x, y, dtype), y, x);
  if (!IsFloatType(dtype)) return r;
  return b.Select(IsNan(b, x), x, b.Select(IsNan(b, y), y, r));
}

Value RoundTo(Builder& b, Value v, DType dtype) {
  if (dtype != DType::kF16 && dtype != DType::kBf16) return v;
  return b.Cvt(b.Cvt(v, MemoryScalar(dtype)), Scalar::kF32);
}

Value Convert(Builder& b, Value v, DType from, DType to) {
  if (from == to) return v;
  if (to == DType::kBool) return b.Cmp(OpCode::kCmpNe, v, ZeroLike(b, v));
  if (IsFloatType(to)) return ToFloat(b, v, from, to);
  if (IsFloatType(from)) return FloatToInt(b, v, to);
  return b.Cvt(v, ComputeScalar(to));
}

Value ConstantBits(Builder& b, uint64_t bits, DType dtype, int lanes) {
  const Type t{ComputeScalar(dtype), static_cast<uint16_t>(lanes)};
  switch (dtype) {
    case DType::kF16:
      return b.Float(F16ToF32(static_cast<uint16_t>(bits)), t);
    case DType::kBf16:
      return b.Float(Bf16ToF32(static_cast<uint16_t>(bits)), t);
    case DType::kF32:
      return b.Float(std::bit_cast<float>(static_cast<uint32_t>(bits)), t);
    case DType::kF64:
      return b.Float(std::bit_cast<double>(bits), t);
    case DType::kBool:
      return b.Int(bits != 0 ? 1 : 0, t);
    case DType::kI8:
      return b.Int(static_cast<int8_t>(bits), t);
    case DType::kI16:
      return b.Int(static_cast<int16_t>(bits), t);
    case DType::kI32:
      return b.Int(static_cast<int32_t>(bits), t);
    default:
      return b.Int(static_cast<int64_t>(bits), t);
  }
}

Value Constant(Builder& b, double value, DType dtype, int lanes) {
  const float f = static_cast<float>(value);
  switch (dtype) {
    case DType::kF16:
      return ConstantBits(b, F32ToF16(f), dtype, lanes);
    case DType::kBf16:
      return ConstantBits(b, F32ToBf16(f), dtype, lanes);
    case DType::kF32:
      return ConstantBits(b, std::bit_cast<uint32_t>(f), dtype, lanes);
    case DType::kF64:
      return ConstantBits(b, std::bit_cast<uint64_t>(value), dtype, lanes);
    case DType::kBool:
      return ConstantBits(b, value != 0, dtype, lanes);
    default:
      return ConstantBits(b, IntegerBits(value, dtype), dtype, lanes);
  }
}

bool IsElementwise(OpKind op) { return op <= OpKind::kClamp; }

int CostOf(OpKind op) {
  switch (op) {
    case OpKind::kExp:
    case OpKind::kExp2:
    case OpKind::kSigmoid:
    case OpKind::kSilu:
      return 8;
    case OpKind::kLog:
    case OpKind::kLog2:
    case OpKind::kSin:
    case OpKind::kCos:
    case OpKind::kTanh:
    case OpKind::kErf:
    case OpKind::kGelu:
    case OpKind::kGeluTanh:
    case OpKind::kMod:
      return 16;
    case OpKind::kPow:
      return 24;
    case OpKind::kDiv:
    case OpKind::kSqrt:
    case OpKind::kRsqrt:
    case OpKind::kRecip:
      return 4;
    default:
      return 1;
  }
}

ScalarCode CodeOf(OpKind op, const ir::Attrs& attrs, DType in, DType out) {
  using Args = absl::Span<const Value>;
  if (op == OpKind::kCast) {
    return [=](Builder& b, Args v) { return Convert(b, v[0], in, out); };
  }
  if (op == OpKind::kSelect) {
    return [](Builder& b, Args v) { return b.Select(v[0], v[1], v[2]); };
  }
  if (op == OpKind::kClamp) {
    const double min = attrs.Float("min"), max = attrs.Float("max");
    return [=](Builder& b, Args v) { return RoundTo(b, ClampCode(b, v[0], min, max, in), out); };
  }
  if (IsUnary(op)) {
    return [=](Builder& b, Args v) {
      if (in == DType::kBool) return Not(b, v[0]);
      if (!IsFloatType(in)) return UnaryInt(b, op, v[0], in);
      return RoundTo(b, UnaryFloat(b, op, v[0]), out);
    };
  }
  if (IsCompare(op)) return [=](Builder& b, Args v) { return CompareCode(b, op, v[0], v[1], in); };
  CUVIL_CHECK(IsElementwise(op), NameOf(op));
  return [=](Builder& b, Args v) { return RoundTo(b, BinaryCode(b, op, v[0], v[1], in), out); };
}

}  // namespace cuvil::lower
