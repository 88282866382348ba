// Arithmetic, comparisons and reductions: one function a lane, instantiated for every type.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

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

}  // namespace

Exec ArithmeticExecOf(const Op& op, Type first_operand) {
  const Scalar s = op.type.scalar;
  switch (op.code) {
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
    case OpCode::kReduceAdd:
      return FoldOf<Add>(s);
    case OpCode::kReduceMax:
      return FoldOf<Max>(s);
    case OpCode::kReduceMin:
      return FoldOf<Min>(s);
    default:
      return nullptr;
  }
}

}  // namespace cuvil::kernel::interp
