// Request bodies as JSON. Wraps simdjson's DOM: no nesting below kJsonDepthMax, no duplicate keys,
// no NaN, no lone surrogates, no broken UTF-8, no byte order mark; integers are read as integers or
// not at all. A value lives as long as its document.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "simdjson.h"

namespace cuvil::server::openai {

using Value = simdjson::dom::element;
using simdjson::dom::element_type;

class Document {
 public:
  // InvalidArgument unless `text` is one JSON object within the limits.
  static absl::StatusOr<Document> Parse(std::string_view text);

  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();

  simdjson::dom::object root() const;

 private:
  Document();
  std::unique_ptr<simdjson::dom::parser> parser_;
  Value root_;
};

// An integer written as one ("4" and 1.9 and 4.0 are none) that 64 bits hold.
bool IsInteger(const Value& value, int64_t* out);
// Any number. JSON has no NaN and no infinity.
bool IsNumber(const Value& value, double* out);
bool IsString(const Value& value, std::string_view* out);
bool IsBoolean(const Value& value, bool* out);

}  // namespace cuvil::server::openai
