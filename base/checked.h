// Checked integer arithmetic for sizes that come from outside. Every function returns false on
// overflow and leaves *out unspecified.
#pragma once

#include <cstdint>

namespace cuvil {

template <typename T>
[[nodiscard]] inline bool CheckedAdd(T a, T b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}

template <typename T>
[[nodiscard]] inline bool CheckedMul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}

// Rounds up to a multiple of `align` (a power of two).
[[nodiscard]] inline bool CheckedAlignUp(uint64_t value, uint64_t align, uint64_t* out) {
  if (align == 0 || (align & (align - 1)) != 0) return false;
  if (!CheckedAdd<uint64_t>(value, align - 1, out)) return false;
  *out &= ~(align - 1);
  return true;
}

template <typename T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

template <typename T>
constexpr T AlignUp(T value, T align) {
  return CeilDiv(value, align) * align;
}

}  // namespace cuvil
