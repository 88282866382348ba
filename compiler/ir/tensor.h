// Host tensors of the reference interpreter: concrete, dense, row-major, little-endian.
// Plain values, any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/half.h"
#include "base/status.h"

namespace cuvil::ir::interp {

// A borrowed tensor: the bytes belong to someone else.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  absl::Span<const uint8_t> bytes;

  int64_t count() const;
};

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;

  // Errors: a size past kTensorBytesMax, or not a whole number of blocks.
  static absl::StatusOr<Tensor> Zeros(DType dtype, std::vector<int64_t> dims);
  // REQUIRES: as many values as the dims say.
  static Tensor F32(std::vector<int64_t> dims, const std::vector<float>& values);
  static Tensor I32(std::vector<int64_t> dims, const std::vector<int32_t>& values);
  static Tensor I64(std::vector<int64_t> dims, const std::vector<int64_t>& values);
  static Tensor Bool(std::vector<int64_t> dims, const std::vector<bool>& values);

  int64_t count() const { return view().count(); }
  TensorView view() const { return {dtype, dims, bytes}; }
  // Every element as a double (64-bit integers may round). REQUIRES: no block type.
  std::vector<double> ToDoubles() const;
};

// One tensor of a reference run never needs more; a hostile shape asks for it first.
inline constexpr int64_t kTensorBytesMax = int64_t{8} << 30;

// ---- Elements. A compute type is float for f16, bf16 and f32, double for f64, else the type
// itself.

template <typename C>
C LoadElement(DType dtype, const uint8_t* bytes, int64_t index) {
  if constexpr (std::is_same_v<C, float>) {
    if (dtype != DType::kF32) {
      uint16_t half;
      std::memcpy(&half, bytes + index * 2, 2);
      return dtype == DType::kF16 ? F16ToF32(half) : Bf16ToF32(half);
    }
  }
  if constexpr (std::is_same_v<C, bool>) {
    return bytes[index] != 0;
  } else {
    C value;
    std::memcpy(&value, bytes + index * sizeof(C), sizeof(C));
    return value;
  }
}

template <typename C>
void StoreElement(DType dtype, uint8_t* bytes, int64_t index, C value) {
  if constexpr (std::is_same_v<C, float>) {
    if (dtype != DType::kF32) {
      const uint16_t half = dtype == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
      std::memcpy(bytes + index * 2, &half, 2);
      return;
    }
  }
  if constexpr (std::is_same_v<C, bool>) {
    bytes[index] = value ? 1 : 0;
  } else {
    std::memcpy(bytes + index * sizeof(C), &value, sizeof(C));
  }
}

// Calls f(C{}) with the compute type of a scalar dtype.
template <typename F>
void WithComputeType(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
      return f(bool{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kI16:
      return f(int16_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kU16:
      return f(uint16_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kF16:
    case DType::kBf16:
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    default:
      CUVIL_CHECK(false, "a block type has no compute type");
  }
}

// Converts between compute types as `cast` does: to bool is != 0; float to integer truncates and
// saturates, NaN gives 0; integers wrap; to float rounds to nearest.
template <typename To, typename From>
To ConvertElement(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // As From, the highest integer may round up to one past the range, hence >=.
    if (value != value) return To{0};
    if (value <= static_cast<From>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    if (value >= static_cast<From>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace cuvil::ir::interp
