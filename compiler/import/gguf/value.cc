#include "compiler/import/gguf/value.h"

#include <limits>

#include "base/checked.h"

namespace cuvil::gguf {
namespace {

struct TypeInfo {
  const char* name;
  int bytes;  // of a scalar; for strings and arrays the fewest bytes one takes
};

constexpr TypeInfo kTypes[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},    {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 8}, {"array", 12}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

const TypeInfo& InfoOf(ValueType type) { return kTypes[static_cast<uint32_t>(type)]; }

absl::Status ReadType(Cursor& cursor, std::string_view what, ValueType* out) {
  uint32_t type;
  RETURN_IF_ERROR(cursor.Read(&type, what));
  if (type >= std::size(kTypes)) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), " has unknown value type ",
                                                   type, "; the format defines 0 to 12"));
  }
  *out = static_cast<ValueType>(type);
  return absl::OkStatus();
}

absl::Status CheckBools(absl::Span<const uint8_t> bytes, std::string_view what) {
  for (const uint8_t b : bytes) {
    if (b > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(what), " holds the bool byte ", b, "; only 0 and 1 are bools"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPayload(Cursor& cursor, std::string_view what, int depth, Value* out);

absl::Status SkipElements(Cursor& cursor, std::string_view what, int depth, const Value& array) {
  for (uint64_t i = 0; i < array.count; ++i) {
    Value element{.type = array.element, .element = array.element};
    RETURN_IF_ERROR(ReadPayload(cursor, what, depth + 1, &element));
  }
  return absl::OkStatus();
}

absl::Status ReadArray(Cursor& cursor, std::string_view what, int depth, Value* out) {
  if (depth >= kMaxArrayDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " nests arrays deeper than the limit of ", kMaxArrayDepth));
  }
  RETURN_IF_ERROR(ReadType(cursor, what, &out->element));
  RETURN_IF_ERROR(cursor.Read(&out->count, what));
  uint64_t least;
  if (!CheckedMul<uint64_t>(out->count, InfoOf(out->element).bytes, &least) ||
      least > cursor.remaining()) {
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(what), " claims an array of ", out->count, " ", InfoOf(out->element).name,
        " but only ", cursor.remaining(), " bytes are left; the file is cut short or corrupt"));
  }
  const bool variable = out->element == ValueType::kString || out->element == ValueType::kArray;
  if (!variable) {
    RETURN_IF_ERROR(cursor.Take(least, what, &out->bytes));
    return out->element == ValueType::kBool ? CheckBools(out->bytes, what) : absl::OkStatus();
  }
  // Walk a copy to find the end, then take it all as one view.
  Cursor walk = cursor;
  RETURN_IF_ERROR(SkipElements(walk, what, depth, *out));
  return cursor.Take(walk.position() - cursor.position(), what, &out->bytes);
}

// Recursion is bounded by kMaxArrayDepth. Each level walks its bytes once.
absl::Status ReadPayload(Cursor& cursor, std::string_view what, int depth, Value* out) {
  if (out->type == ValueType::kArray) return ReadArray(cursor, what, depth, out);
  if (out->type == ValueType::kString) {
    std::string_view text;
    RETURN_IF_ERROR(cursor.ReadString(&text, what));
    out->bytes = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(cursor.Take(InfoOf(out->type).bytes, what, &out->bytes));
  return out->type == ValueType::kBool ? CheckBools(out->bytes, what) : absl::OkStatus();
}

template <typename T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

bool LoadInt(ValueType type, const uint8_t* p, int64_t* out) {
  switch (type) {
    case ValueType::kU8:
      *out = Load<uint8_t>(p);
      return true;
    case ValueType::kI8:
      *out = Load<int8_t>(p);
      return true;
    case ValueType::kU16:
      *out = Load<uint16_t>(p);
      return true;
    case ValueType::kI16:
      *out = Load<int16_t>(p);
      return true;
    case ValueType::kU32:
      *out = Load<uint32_t>(p);
      return true;
    case ValueType::kI32:
      *out = Load<int32_t>(p);
      return true;
    case ValueType::kI64:
      *out = Load<int64_t>(p);
      return true;
    case ValueType::kU64: {
      const uint64_t value = Load<uint64_t>(p);
      *out = static_cast<int64_t>(value);
      return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
    default:
      return false;
  }
}

bool LoadDouble(ValueType type, const uint8_t* p, double* out) {
  if (type == ValueType::kF32) *out = Load<float>(p);
  if (type == ValueType::kF64) *out = Load<double>(p);
  return type == ValueType::kF32 || type == ValueType::kF64;
}

}  // namespace

std::string Describe(const Value& value) {
  if (value.type != ValueType::kArray) return InfoOf(value.type).name;
  return absl::StrCat("array of ", value.count, " ", InfoOf(value.element).name);
}

absl::Status ReadValue(Cursor& cursor, std::string_view what, Value* out) {
  RETURN_IF_ERROR(ReadType(cursor, what, &out->type));
  out->element = out->type;
  return ReadPayload(cursor, what, 0, out);
}

bool ToInt(const Value& value, int64_t* out) {
  return LoadInt(value.type, value.bytes.data(), out);
}

bool ToDouble(const Value& value, double* out) {
  return LoadDouble(value.type, value.bytes.data(), out);
}

bool ToInts(const Value& value, std::vector<int64_t>* out) {
  if (value.type != ValueType::kArray || value.element == ValueType::kArray) return false;
  out->resize(value.count);
  const int stride = InfoOf(value.element).bytes;
  for (uint64_t i = 0; i < value.count; ++i) {
    if (!LoadInt(value.element, value.bytes.data() + i * stride, &(*out)[i])) return false;
  }
  return true;
}

bool ToDoubles(const Value& value, std::vector<double>* out) {
  if (value.type != ValueType::kArray || value.element == ValueType::kArray) return false;
  out->resize(value.count);
  const int stride = InfoOf(value.element).bytes;
  for (uint64_t i = 0; i < value.count; ++i) {
    if (!LoadDouble(value.element, value.bytes.data() + i * stride, &(*out)[i])) return false;
  }
  return true;
}

bool ToBools(const Value& value, std::vector<bool>* out) {
  if (value.type != ValueType::kArray || value.element != ValueType::kBool) return false;
  out->assign(value.bytes.begin(), value.bytes.end());
  return true;
}

bool ToStrings(const Value& value, std::vector<std::string_view>* out) {
  if (value.type != ValueType::kArray || value.element != ValueType::kString) return false;
  out->reserve(value.count);
  Cursor cursor(value.bytes);
  for (uint64_t i = 0; i < value.count; ++i) {
    std::string_view text;
    if (!cursor.ReadString(&text, "element").ok()) return false;  // checked when it was read
    out->push_back(text);
  }
  return true;
}

}  // namespace cuvil::gguf
