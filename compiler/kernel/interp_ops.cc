// The meaning of every op that computes lanes from lanes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/half.h"
#include "compiler/kernel/interp_machine.h"

namespace cuvil::kernel::interp {
namespace {

// Integers wrap: arithmetic goes through uint64_t, where that is defined.
template <typename T>
constexpr uint64_t U(T v) {
  return static_cast<uint64_t>(v);
}

struct Add {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a + b;
    else
      return static_cast<T>(U(a) + U(b));
  }
};
struct Sub {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a - b;
    else
      return static_cast<T>(U(a) - U(b));
  }
};
struct Mul {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a * b;
    else
      return static_cast<T>(U(a) * U(b));
  }
};
struct Min {
  template <typename T>
  static T Of(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <typename T>
  static T Of(T a, T b) {
    return a > b ? a : b;
  }
};
struct And {
  template <typename T>
  static T Of(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <typename T>
  static T Of(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <typename T>
  static T Of(T a, T b) {
    return a ^ b;
  }
};
struct Eq {
  template <typename T>
  static bool Of(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <typename T>
  static bool Of(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <typename T>
  static bool Of(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <typename T>
  static bool Of(T a, T b) {
    return a <= b;
  }
};
struct Neg {
  template <typename T>
  static T Of(T a) {
    if constexpr (std::is_floating_point_v<T>)
      return -a;
    else
      return static_cast<T>(0 - U(a));
  }
};
struct Abs {
  template <typename T>
  static T Of(T a) {
    if constexpr (std::is_floating_point_v<T>)
      return std::fabs(a);
    else
      return a < 0 ? static_cast<T>(0 - U(a)) : a;
  }
};
struct Sqrt {
  template <typename T>
  static T Of(T a) {
    return std::sqrt(a);
  }
};
struct Floor {
  template <typename T>
  static T Of(T a) {
    return std::floor(a);
  }
};
struct Ceil {
  template <typename T>
  static T Of(T a) {
    return std::ceil(a);
  }
};
struct Trunc {
  template <typename T>
  static T Of(T a) {
    return std::trunc(a);
  }
};
struct Round {
  template <typename T>
  static T Of(T a) {
    return std::nearbyint(a);  // the default rounding mode: to nearest, ties to even
  }
};

template <typename F, typename T>
bool Unary(const Step& s, Machine& m) {
  const T* a = m.at<T>(s.in[0]);
  T* out = m.at<T>(s.out);
  for (int i = 0; i < s.lanes; ++i) out[i] = F::Of(a[i]);
  return true;
}

template <typename F, typename T>
bool Binary(const Step& s, Machine& m) {
  const T* a = m.at<T>(s.in[0]);
  const T* b = m.at<T>(s.in[1]);
  T* out = m.at<T>(s.out);
  for (int i = 0; i < s.lanes; ++i) out[i] = F::Of(a[i], b[i]);
  return true;
}

template <typename F, typename T>
bool Compare(const Step& s, Machine& m) {
  const T* a = m.at<T>(s.in[0]);
  const T* b = m.at<T>(s.in[1]);
  uint8_t* out = m.at<uint8_t>(s.out);
  for (int i = 0; i < s.lanes; ++i) out[i] = F::Of(a[i], b[i]);
  return true;
}

template <typename F, typename T>
bool Fold(const Step& s, Machine& m) {
  T lanes[64];
  std::copy_n(m.at<T>(s.in[0]), s.in_lanes, lanes);
  for (int n = s.in_lanes / 2; n >= 1; n /= 2) {
    for (int i = 0; i < n; ++i) lanes[i] = F::Of(lanes[i], lanes[i + n]);
  }
  *m.at<T>(s.out) = lanes[0];
  return true;
}

template <typename T>
bool Fma(const Step& s, Machine& m) {
  const T *a = m.at<T>(s.in[0]), *b = m.at<T>(s.in[1]), *c = m.at<T>(s.in[2]);
  T* out = m.at<T>(s.out);
  for (int i = 0; i < s.lanes; ++i) out[i] = std::fma(a[i], b[i], c[i]);
  return true;
}

template <bool kRemainder, typename T>
bool DivInt(const Step& s, Machine& m) {
  const T *a = m.at<T>(s.in[0]), *b = m.at<T>(s.in[1]);
  T* out = m.at<T>(s.out);
  for (int i = 0; i < s.lanes; ++i) {
    if (b[i] == 0) return m.Fail(s, absl::StrCat("divides by zero in lane ", i));
    if (std::is_signed_v<T> && b[i] == static_cast<T>(-1) &&
        a[i] == std::numeric_limits<T>::min()) {
      return m.Fail(s, absl::StrCat("overflows in lane ", i));
    }
    out[i] = static_cast<T>(kRemainder ? a[i] % b[i] : a[i] / b[i]);
  }
  return true;
}

struct DivFloat {
  template <typename T>
  static T Of(T a, T b) {
    return a / b;
  }
};

template <typename T>
bool Shl(const Step& s, Machine& m) {
  const T* a = m.at<T>(s.in[0]);
  for (int i = 0; i < s.lanes; ++i) m.at<T>(s.out)[i] = static_cast<T>(U(a[i]) << s.imm);
  return true;
}

template <typename T>
bool Shr(const Step& s, Machine& m) {
  const T* a = m.at<T>(s.in[0]);
  for (int i = 0; i < s.lanes; ++i) m.at<T>(s.out)[i] = static_cast<T>(a[i] >> s.imm);
  return true;
}

bool Select(const Step& s, Machine& m) {
  const uint8_t* cond = m.at<uint8_t>(s.in[0]);
  for (int i = 0; i < s.lanes; ++i) {
    const uint32_t from = s.in[cond[i] ? 1 : 2] + i * s.lane_bytes;
    std::memcpy(m.at<uint8_t>(s.out + i * s.lane_bytes), m.at<uint8_t>(from), s.lane_bytes);
  }
  return true;
}

bool Splat(const Step& s, Machine& m) {
  for (int i = 0; i < s.lanes; ++i) {
    std::memcpy(m.at<uint8_t>(s.out + i * s.lane_bytes), m.at<uint8_t>(s.in[0]), s.lane_bytes);
  }
  return true;
}

bool Bitcast(const Step& s, Machine& m) {
  std::memcpy(m.at<uint8_t>(s.out), m.at<uint8_t>(s.in[0]), s.lanes * s.lane_bytes);
  return true;
}

bool Extract(const Step& s, Machine& m) {
  const uint32_t from = s.in[0] + static_cast<uint32_t>(s.imm) * s.lane_bytes;
  std::memcpy(m.at<uint8_t>(s.out), m.at<uint8_t>(from), s.lane_bytes);
  return true;
}

bool Insert(const Step& s, Machine& m) {
  std::memcpy(m.at<uint8_t>(s.out), m.at<uint8_t>(s.in[0]), s.lanes * s.lane_bytes);
  const uint32_t to = s.out + static_cast<uint32_t>(s.imm) * s.lane_bytes;
  std::memcpy(m.at<uint8_t>(to), m.at<uint8_t>(s.in[1]), s.lane_bytes);
  return true;
}

bool Shuffle(const Step& s, Machine& m) {
  for (int i = 0; i < s.lanes; ++i) {
    const int lane = s.table[i];
    const uint32_t from = lane < s.in_lanes ? s.in[0] + lane * s.lane_bytes
                                            : s.in[1] + (lane - s.in_lanes) * s.lane_bytes;
    std::memcpy(m.at<uint8_t>(s.out + i * s.lane_bytes), m.at<uint8_t>(from), s.lane_bytes);
  }
  return true;
}

bool Dot4(const Step& s, Machine& m) {
  const int32_t *c = m.at<int32_t>(s.in[0]), *a = m.at<int32_t>(s.in[1]),
                *b = m.at<int32_t>(s.in[2]);
  int32_t* out = m.at<int32_t>(s.out);
  for (int i = 0; i < s.lanes; ++i) {
    uint32_t sum = static_cast<uint32_t>(c[i]);
    for (int j = 0; j < 32; j += 8) {
      const int32_t x = static_cast<uint8_t>(static_cast<uint32_t>(a[i]) >> j);
      const int32_t y = static_cast<int8_t>(static_cast<uint32_t>(b[i]) >> j);
      if (x > s.imm) {
        return m.Fail(s, absl::StrCat("byte ", x, " in lane ", i, " is over its bound ", s.imm));
      }
      sum += static_cast<uint32_t>(x * y);
    }
    out[i] = static_cast<int32_t>(sum);
  }
  return true;
}

template <typename From, typename To>
bool Convert(const Step& s, Machine& m) {
  const From* a = m.at<From>(s.in[0]);
  To* out = m.at<To>(s.out);
  for (int i = 0; i < s.lanes; ++i) {
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      // Bounds are powers of two, exact in double.
      const double v = std::trunc(static_cast<double>(a[i]));
      const double low = static_cast<double>(std::numeric_limits<To>::min());
      const double high = std::ldexp(1.0, std::numeric_limits<To>::digits);
      if (!(v >= low && v < high)) {
        return m.Fail(s,
                      absl::StrCat("converts ", a[i], " in lane ", i, ", which is out of range"));
      }
    }
    out[i] = static_cast<To>(a[i]);
  }
  return true;
}

template <auto kConvert, typename From, typename To>
bool ConvertBy(const Step& s, Machine& m) {
  for (int i = 0; i < s.lanes; ++i) m.at<To>(s.out)[i] = kConvert(m.at<From>(s.in[0])[i]);
  return true;
}

// Calls f.template operator()<T>() with the C++ type of an integer, f32 or f64.
template <typename F>
Exec WithType(Scalar s, F f) {
  switch (s) {
    case Scalar::kI1:
    case Scalar::kU8:
      return f.template operator()<uint8_t>();
    case Scalar::kS8:
      return f.template operator()<int8_t>();
    case Scalar::kS16:
      return f.template operator()<int16_t>();
    case Scalar::kU16:
      return f.template operator()<uint16_t>();
    case Scalar::kS32:
      return f.template operator()<int32_t>();
    case Scalar::kU32:
      return f.template operator()<uint32_t>();
    case Scalar::kS64:
      return f.template operator()<int64_t>();
    case Scalar::kF32:
      return f.template operator()<float>();
    case Scalar::kF64:
      return f.template operator()<double>();
    case Scalar::kF16:
    case Scalar::kBf16:
      return nullptr;  // Verify refuses arithmetic on them
  }
  return nullptr;
}

template <typename F>
Exec UnaryOf(Scalar s) {
  return WithType(s, []<typename T>() -> Exec { return &Unary<F, T>; });
}
template <typename F>
Exec FloatUnaryOf(Scalar s) {
  return s == Scalar::kF32 ? &Unary<F, float> : &Unary<F, double>;
}
template <typename F>
Exec BinaryOf(Scalar s) {
  return WithType(s, []<typename T>() -> Exec { return &Binary<F, T>; });
}
template <typename F>
Exec BitwiseOf(Scalar s) {
  return WithType(s, []<typename T>() -> Exec {
    if constexpr (std::is_integral_v<T>) return &Binary<F, T>;
    return nullptr;
  });
}
template <typename F>
Exec CompareOf(Scalar s) {
  return WithType(s, []<typename T>() -> Exec { return &Compare<F, T>; });
}
template <typename F>
Exec FoldOf(Scalar s) {
  return WithType(s, []<typename T>() -> Exec { return &Fold<F, T>; });
}

template <bool kRemainder>
Exec DivOf(Scalar s) {
  return WithType(s, []<typename T>() -> Exec {
    if constexpr (std::is_integral_v<T>)
      return &DivInt<kRemainder, T>;
    else
      return &Binary<DivFloat, T>;
  });
}

Exec ShiftOf(OpCode code, Scalar s) {
  return WithType(s, [&]<typename T>() -> Exec {
    if constexpr (std::is_integral_v<T>) return code == OpCode::kShl ? &Shl<T> : &Shr<T>;
    return nullptr;
  });
}

Exec ConvertOf(Scalar from, Scalar to) {
  if (from == Scalar::kF16) return &ConvertBy<F16ToF32, uint16_t, float>;
  if (from == Scalar::kBf16) return &ConvertBy<Bf16ToF32, uint16_t, float>;
  if (to == Scalar::kF16) return &ConvertBy<F32ToF16, float, uint16_t>;
  if (to == Scalar::kBf16) return &ConvertBy<F32ToBf16, float, uint16_t>;
  return WithType(from, [&]<typename From>() -> Exec {
    return WithType(to, []<typename To>() -> Exec { return &Convert<From, To>; });
  });
}

// A double as float such that rounding it once more to 16 bits equals rounding the double directly
// (round to odd: an inexact result keeps a one in its last bit).
float RoundToOdd(double d) {
  float f = static_cast<float>(d);
  if (std::isnan(d) || static_cast<double>(f) == d) return f;
  if (std::fabs(static_cast<double>(f)) > std::fabs(d)) f = std::nextafter(f, 0.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(f) | 1u);
}

}  // namespace

Exec ExecOf(const Op& op, Type first_operand) {
  const Scalar s = op.type.scalar;
  switch (op.code) {
    case OpCode::kSplat:
      return &Splat;
    case OpCode::kAdd:
      return BinaryOf<Add>(s);
    case OpCode::kSub:
      return BinaryOf<Sub>(s);
    case OpCode::kMul:
      return BinaryOf<Mul>(s);
    case OpCode::kDiv:
      return DivOf<false>(s);
    case OpCode::kRem:
      return DivOf<true>(s);
    case OpCode::kFma:
      return s == Scalar::kF32 ? &Fma<float> : &Fma<double>;
    case OpCode::kMin:
      return BinaryOf<Min>(s);
    case OpCode::kMax:
      return BinaryOf<Max>(s);
    case OpCode::kAnd:
      return BitwiseOf<And>(s);
    case OpCode::kOr:
      return BitwiseOf<Or>(s);
    case OpCode::kXor:
      return BitwiseOf<Xor>(s);
    case OpCode::kShl:
    case OpCode::kShr:
      return ShiftOf(op.code, s);
    case OpCode::kNeg:
      return UnaryOf<Neg>(s);
    case OpCode::kAbs:
      return UnaryOf<Abs>(s);
    case OpCode::kSqrt:
      return FloatUnaryOf<Sqrt>(s);
    case OpCode::kFloor:
      return FloatUnaryOf<Floor>(s);
    case OpCode::kCeil:
      return FloatUnaryOf<Ceil>(s);
    case OpCode::kTrunc:
      return FloatUnaryOf<Trunc>(s);
    case OpCode::kRound:
      return FloatUnaryOf<Round>(s);
    case OpCode::kCmpEq:
      return CompareOf<Eq>(first_operand.scalar);
    case OpCode::kCmpNe:
      return CompareOf<Ne>(first_operand.scalar);
    case OpCode::kCmpLt:
      return CompareOf<Lt>(first_operand.scalar);
    case OpCode::kCmpLe:
      return CompareOf<Le>(first_operand.scalar);
    case OpCode::kSelect:
      return &Select;
    case OpCode::kCvt:
      return ConvertOf(first_operand.scalar, s);
    case OpCode::kBitcast:
      return &Bitcast;
    case OpCode::kExtract:
      return &Extract;
    case OpCode::kInsert:
      return &Insert;
    case OpCode::kShuffle:
      return &Shuffle;
    case OpCode::kReduceAdd:
      return FoldOf<Add>(s);
    case OpCode::kReduceMax:
      return FoldOf<Max>(s);
    case OpCode::kReduceMin:
      return FoldOf<Min>(s);
    case OpCode::kDot4:
      return &Dot4;
    default:
      return nullptr;
  }
}

void WriteConst(const Op& op, uint8_t* to) {
  const int bytes = LaneBytes(op.type.scalar);
  uint64_t bits = static_cast<uint64_t>(op.imm);  // little-endian: the low bytes are the value
  switch (op.type.scalar) {
    case Scalar::kF16:
      bits = F32ToF16(RoundToOdd(op.fimm));
      break;
    case Scalar::kBf16:
      bits = F32ToBf16(RoundToOdd(op.fimm));
      break;
    case Scalar::kF32:
      bits = std::bit_cast<uint32_t>(static_cast<float>(op.fimm));
      break;
    case Scalar::kF64:
      bits = std::bit_cast<uint64_t>(op.fimm);
      break;
    default:
      break;
  }
  for (int i = 0; i < op.type.lanes; ++i) std::memcpy(to + i * bytes, &bits, bytes);
}

}  // namespace cuvil::kernel::interp
