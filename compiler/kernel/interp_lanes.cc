// Moving, converting and dotting lanes, and constants.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/half.h"
#include "compiler/kernel/interp_machine.h"

namespace cuvil::kernel::interp {
namespace {

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

Exec LaneExecOf(const Op& op, Type first_operand) {
  switch (op.code) {
    case OpCode::kSplat:
      return &Splat;
    case OpCode::kSelect:
      return &Select;
    case OpCode::kCvt:
      return ConvertOf(first_operand.scalar, op.type.scalar);
    case OpCode::kBitcast:
      return &Bitcast;
    case OpCode::kExtract:
      return &Extract;
    case OpCode::kInsert:
      return &Insert;
    case OpCode::kShuffle:
      return &Shuffle;
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
