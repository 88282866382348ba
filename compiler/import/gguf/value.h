// One metadata value of a GGUF file: a type and a view of its encoded bytes, checked when it was
// read. A value owns nothing; it lives as long as the file's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/import/gguf/cursor.h"

namespace cuvil::gguf {

// The numbers are the format's.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Arrays of arrays are legal but no known model nests them; four levels bound the recursion.
inline constexpr int kMaxArrayDepth = 4;

struct Value {
  ValueType type;
  ValueType element;                // of an array
  uint64_t count = 1;               // elements of an array
  absl::Span<const uint8_t> bytes;  // a scalar, a string's characters, or an array's elements

  std::string_view AsString() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// "u32", "string", "array of 5 f32": what an error says was found.
std::string Describe(const Value& value);

// Reads a type and a value. `what` names the value in errors.
absl::Status ReadValue(Cursor& cursor, std::string_view what, Value* out);

// Conversions; false when the type does not fit or the number is out of range.
bool ToInt(const Value& value, int64_t* out);    // any integer type
bool ToDouble(const Value& value, double* out);  // f32 or f64
bool ToInts(const Value& value, std::vector<int64_t>* out);
bool ToDoubles(const Value& value, std::vector<double>* out);
bool ToBools(const Value& value, std::vector<bool>* out);
bool ToStrings(const Value& value, std::vector<std::string_view>* out);

}  // namespace cuvil::gguf
