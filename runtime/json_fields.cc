#include "runtime/json_fields.h"

#include <cmath>
#include <utility>

namespace cuvil::runtime {
namespace {

const Json& EmptyArray() {
  static const Json empty = Json::array();
  return empty;
}

}  // namespace

bool ReadInt(const Json& value, int64_t low, int64_t high, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *out = value.get<int64_t>();
  return *out >= low && *out <= high;
}

JsonFields::JsonFields(const Json& object, std::string path, absl::Status* status)
    : object_(object), path_(std::move(path)), status_(status) {
  if (!object_.is_object()) Fail("", "is not an object");
}

void JsonFields::Fail(std::string_view key, std::string_view what) {
  if (!status_->ok()) return;
  const absl::string_view dot = path_.empty() || key.empty() ? "" : ".";
  *status_ = absl::InvalidArgumentError(absl::StrCat(
      "the program is malformed: '", path_, dot, Sv(key), "' ", Sv(what), "; compile it again"));
}

const Json* JsonFields::Value(const char* key) {
  if (!status_->ok()) return nullptr;
  const auto it = object_.find(key);
  if (it == object_.end()) {
    Fail(key, "is missing");
    return nullptr;
  }
  ++read_;
  return &*it;
}

int64_t JsonFields::Int(const char* key, int64_t low, int64_t high) {
  const Json* value = Value(key);
  int64_t out = 0;
  if (value != nullptr && !ReadInt(*value, low, high, &out)) {
    Fail(key, std::string(absl::StrCat("is not an integer in ", low, "..", high)));
    return 0;
  }
  return out;
}

int32_t JsonFields::Int32(const char* key, int32_t low, int32_t high) {
  return static_cast<int32_t>(Int(key, low, high));
}

double JsonFields::Number(const char* key) {
  const Json* value = Value(key);
  if (value == nullptr) return 0;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Fail(key, "is not a finite number");
    return 0;
  }
  return value->get<double>();
}

bool JsonFields::Bool(const char* key) {
  const Json* value = Value(key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) {
    Fail(key, "is not true or false");
    return false;
  }
  return value->get<bool>();
}

std::string JsonFields::Text(const char* key, size_t bytes_max) {
  const Json* value = Value(key);
  if (value == nullptr) return "";
  if (!value->is_string() || value->get_ref<const std::string&>().size() > bytes_max) {
    Fail(key, std::string(absl::StrCat("is not a text of at most ", bytes_max, " bytes")));
    return "";
  }
  return value->get<std::string>();
}

const Json& JsonFields::Array(const char* key, size_t count_max) {
  const Json* value = Value(key);
  if (value == nullptr) return EmptyArray();
  if (!value->is_array() || value->size() > count_max) {
    Fail(key, std::string(absl::StrCat("is not an array of at most ", count_max, " elements")));
    return EmptyArray();
  }
  return *value;
}

void JsonFields::Done() {
  if (status_->ok() && read_ != object_.size()) Fail("", "has fields this version does not know");
}

}  // namespace cuvil::runtime
