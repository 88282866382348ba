#include <cmath>

#include "compiler/ir/interp_ops.h"

namespace cuvil::ir::interp {
namespace {

template <typename T>
T Silu(T x) {
  return x / (T{1} + std::exp(-x));
}

template <typename T>
T UnaryFloat(OpKind op, T x) {
  switch (op) {
    case OpKind::kNeg:
      return -x;
    case OpKind::kAbs:
      return std::fabs(x);
    case OpKind::kSign:
      return x > 0 ? T{1} : x < 0 ? T{-1} : x == 0 ? T{0} : x;
    case OpKind::kRelu:
      return x < 0 ? T{0} : x;
    case OpKind::kExp:
      return std::exp(x);
    case OpKind::kExp2:
      return std::exp2(x);
    case OpKind::kLog:
      return std::log(x);
    case OpKind::kLog2:
      return std::log2(x);
    case OpKind::kSqrt:
      return std::sqrt(x);
    case OpKind::kRsqrt:
      return T{1} / std::sqrt(x);
    case OpKind::kRecip:
      return T{1} / x;
    case OpKind::kSin:
      return std::sin(x);
    case OpKind::kCos:
      return std::cos(x);
    case OpKind::kTanh:
      return std::tanh(x);
    case OpKind::kErf:
      return std::erf(x);
    case OpKind::kSigmoid:
      return T{1} / (T{1} + std::exp(-x));
    case OpKind::kSilu:
      return Silu(x);
    case OpKind::kGelu:
      return x / T{2} * (T{1} + std::erf(x * static_cast<T>(0.70710678118654752440)));
    case OpKind::kGeluTanh: {
      const T inner =
          static_cast<T>(0.79788456080286535588) * (x + static_cast<T>(0.044715) * x * x * x);
      return x / T{2} * (T{1} + std::tanh(inner));
    }
    case OpKind::kFloor:
      return std::floor(x);
    case OpKind::kCeil:
      return std::ceil(x);
    case OpKind::kRound:
      return std::nearbyint(x);  // ties to even in the default mode
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
  return x;
}

// Arithmetic in the unsigned type wraps without undefined behaviour; the narrowing cast back wraps.
template <typename T>
T UnaryInt(OpKind op, T x) {
  const T negated = static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
  switch (op) {
    case OpKind::kNeg:
      return negated;
    case OpKind::kAbs:
      return x < 0 ? negated : x;
    case OpKind::kSign:
      return x > 0 ? T{1} : x < 0 ? static_cast<T>(-1) : T{0};
    case OpKind::kRelu:
      return x < 0 ? T{0} : x;
    case OpKind::kNot:
      return static_cast<T>(~x);
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
  return x;
}

template <typename T>
T BinaryFloat(OpKind op, T a, T b) {
  switch (op) {
    case OpKind::kAdd:
      return a + b;
    case OpKind::kSub:
      return a - b;
    case OpKind::kMul:
      return a * b;
    case OpKind::kDiv:
      return a / b;
    case OpKind::kPow:
      return std::pow(a, b);
    case OpKind::kMin:
      return a != a ? a : b != b ? b : b < a ? b : a;
    case OpKind::kMax:
      return a != a ? a : b != b ? b : b > a ? b : a;
    case OpKind::kMod: {
      const T rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
  return a;
}

template <typename T>
T DivideInt(T a, T b) {
  if (b == 0) return T{0};
  if constexpr (std::is_signed_v<T>) {
    if (b == T{-1}) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
  }
  return static_cast<T>(a / b);
}

template <typename T>
T ModInt(T a, T b) {
  if (b == 0) return T{0};
  if constexpr (std::is_signed_v<T>) {
    if (b == T{-1}) return T{0};
    const T rest = static_cast<T>(a % b);
    return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  }
  return static_cast<T>(a % b);
}

template <typename T>
T BinaryInt(OpKind op, T a, T b) {
  const uint64_t x = static_cast<uint64_t>(a);
  const uint64_t y = static_cast<uint64_t>(b);
  switch (op) {
    case OpKind::kAdd:
      return static_cast<T>(x + y);
    case OpKind::kSub:
      return static_cast<T>(x - y);
    case OpKind::kMul:
      return static_cast<T>(x * y);
    case OpKind::kDiv:
      return DivideInt(a, b);
    case OpKind::kMod:
      return ModInt(a, b);
    case OpKind::kMin:
      return b < a ? b : a;
    case OpKind::kMax:
      return b > a ? b : a;
    case OpKind::kAnd:
      return static_cast<T>(a & b);
    case OpKind::kOr:
      return static_cast<T>(a | b);
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
  return a;
}

bool IsComparison(OpKind op) { return op >= OpKind::kEq && op <= OpKind::kGe; }

template <typename T>
bool CompareElements(OpKind op, T a, T b) {
  switch (op) {
    case OpKind::kEq:
      return a == b;
    case OpKind::kNe:
      return a != b;
    case OpKind::kLt:
      return a < b;
    case OpKind::kLe:
      return a <= b;
    case OpKind::kGt:
      return a > b;
    case OpKind::kGe:
      return a >= b;
    default:
      break;
  }
  CUVIL_CHECK(false, NameOf(op));
  return false;
}

template <typename T>
T ApplyUnary(OpKind op, T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return !x;  // the only unary op on bool
  } else if constexpr (std::is_floating_point_v<T>) {
    return UnaryFloat(op, x);
  } else {
    return UnaryInt(op, x);
  }
}

template <typename T>
T ApplyBinary(OpKind op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return op == OpKind::kAnd ? a && b : a || b;
  } else if constexpr (std::is_floating_point_v<T>) {
    return BinaryFloat(op, a, b);
  } else {
    return BinaryInt(op, a, b);
  }
}

}  // namespace

absl::Status Unary(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  WithComputeType(x.dtype, [&](auto tag) {
    using C = decltype(tag);
    for (int64_t i = 0; i < out.count(); ++i) {
      const C value = ApplyUnary<C>(call.node.op, LoadElement<C>(x.dtype, x.bytes.data(), i));
      StoreElement<C>(out.dtype, out.bytes.data(), i, value);
    }
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Binary(OpCall& call) {
  const TensorView a = call.In(0);
  const TensorView b = call.In(1);
  const OpKind op = call.node.op;
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const int64_t count = out.count();
  WithComputeType(a.dtype, [&](auto tag) {
    using C = decltype(tag);
    for (int64_t i = 0; i < count; ++i) {
      const C x = LoadElement<C>(a.dtype, a.bytes.data(), BroadcastIndex(out.dims, a.dims, i));
      const C y = LoadElement<C>(b.dtype, b.bytes.data(), BroadcastIndex(out.dims, b.dims, i));
      if (IsComparison(op)) {
        StoreElement<bool>(DType::kBool, out.bytes.data(), i, CompareElements<C>(op, x, y));
      } else {
        StoreElement<C>(out.dtype, out.bytes.data(), i, ApplyBinary<C>(op, x, y));
      }
    }
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Select(OpCall& call) {
  const TensorView cond = call.In(0);
  const TensorView sides[] = {call.In(1), call.In(2)};
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const size_t size = Info(out.dtype).bytes;
  const int64_t count = out.count();
  for (int64_t i = 0; i < count; ++i) {
    const bool first = cond.bytes[BroadcastIndex(out.dims, cond.dims, i)] != 0;
    const TensorView& side = sides[first ? 0 : 1];
    std::memcpy(&out.bytes[i * size], &side.bytes[BroadcastIndex(out.dims, side.dims, i) * size],
                size);
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Cast(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  WithComputeType(x.dtype, [&](auto from_tag) {
    using From = decltype(from_tag);
    WithComputeType(out.dtype, [&](auto to_tag) {
      using To = decltype(to_tag);
      for (int64_t i = 0; i < out.count(); ++i) {
        const From value = LoadElement<From>(x.dtype, x.bytes.data(), i);
        StoreElement<To>(out.dtype, out.bytes.data(), i, ConvertElement<To>(value));
      }
    });
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Clamp(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const double min = call.attrs().Float("min");
  const double max = call.attrs().Float("max");
  WithComputeType(x.dtype, [&](auto tag) {
    using C = decltype(tag);
    // Bounds between two integers tighten to the nearest one inside.
    const bool whole = std::is_integral_v<C>;
    const C low = ConvertElement<C>(whole ? std::ceil(min) : min);
    const C high = ConvertElement<C>(whole ? std::floor(max) : max);
    for (int64_t i = 0; i < out.count(); ++i) {
      C value = LoadElement<C>(x.dtype, x.bytes.data(), i);
      if (value < low) value = low;
      if (value > high) value = high;
      StoreElement<C>(out.dtype, out.bytes.data(), i, value);
    }
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

}  // namespace cuvil::ir::interp
