// Element types shared by every floor: plain scalars and GGML-style block types, in which `block`
// consecutive elements of a row share `bytes` bytes. Block types are first-class: a weight stays
// packed until a kernel reads it. Layouts: the public GGUF/ggml definitions, decoded in
// base/blocks.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"

namespace cuvil {

enum class DType : uint8_t {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBf16,
  kF32,
  kF64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as CU-IR text spells it
  int block;              // elements per block, 1 for scalars
  int bytes;              // bytes per block
  bool is_float;          // holds real numbers (block types do)
};

inline constexpr DTypeInfo kDTypes[] = {
    {DType::kBool, "bool", 1, 1, false},   {DType::kI8, "i8", 1, 1, false},
    {DType::kI16, "i16", 1, 2, false},     {DType::kI32, "i32", 1, 4, false},
    {DType::kI64, "i64", 1, 8, false},     {DType::kU8, "u8", 1, 1, false},
    {DType::kU16, "u16", 1, 2, false},     {DType::kU32, "u32", 1, 4, false},
    {DType::kU64, "u64", 1, 8, false},     {DType::kF16, "f16", 1, 2, true},
    {DType::kBf16, "bf16", 1, 2, true},    {DType::kF32, "f32", 1, 4, true},
    {DType::kF64, "f64", 1, 8, true},      {DType::kQ4_0, "q4_0", 32, 18, true},
    {DType::kQ4_1, "q4_1", 32, 20, true},  {DType::kQ5_0, "q5_0", 32, 22, true},
    {DType::kQ5_1, "q5_1", 32, 24, true},  {DType::kQ8_0, "q8_0", 32, 34, true},
    {DType::kQ2K, "q2_k", 256, 84, true},  {DType::kQ3K, "q3_k", 256, 110, true},
    {DType::kQ4K, "q4_k", 256, 144, true}, {DType::kQ5K, "q5_k", 256, 176, true},
    {DType::kQ6K, "q6_k", 256, 210, true}, {DType::kIq4Nl, "iq4_nl", 32, 18, true},
};

constexpr const DTypeInfo& Info(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }

constexpr bool IsBlock(DType dtype) { return Info(dtype).block > 1; }

inline std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace cuvil
