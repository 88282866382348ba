// JsonFields: strict reading of one JSON object. Every read names a field; the first problem sticks
// in a shared status and later reads return empty values, so that a reader is a plain list of
// fields with one check at the end.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/json.h"

namespace cuvil::runtime {

class JsonFields {
 public:
  // `status` outlives this object and collects the first error of all objects that share it.
  JsonFields(const Json& object, std::string path, absl::Status* status);

  int64_t Int(const char* key, int64_t low, int64_t high);
  int32_t Int32(const char* key, int32_t low = std::numeric_limits<int32_t>::min(),
                int32_t high = std::numeric_limits<int32_t>::max());
  double Number(const char* key);  // finite
  bool Bool(const char* key);
  std::string Text(const char* key, size_t bytes_max);
  // The elements of an array of at most `count_max`, or an empty array.
  const Json& Array(const char* key, size_t count_max);

  // The raw value, or null after a failure.
  const Json* Value(const char* key);

  // Refuses fields that nobody read.
  void Done();

  void Fail(std::string_view key, std::string_view what);
  const std::string& path() const { return path_; }

 private:
  const Json& object_;
  const std::string path_;
  absl::Status* const status_;
  size_t read_ = 0;
};

// Reads a bare integer (an element of an array) in range into *out; false if it is anything else.
bool ReadInt(const Json& value, int64_t low, int64_t high, int64_t* out);

}  // namespace cuvil::runtime
