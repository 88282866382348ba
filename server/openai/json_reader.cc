#include "server/openai/json_reader.h"

#include "absl/container/flat_hash_set.h"
#include "base/json.h"
#include "server/openai/error.h"

namespace cuvil::server::openai {
namespace {

using simdjson::error_code;

// Below this many keys comparing each with each is quicker than a table.
constexpr size_t kFewKeys = 16;

bool HasDuplicateKeys(const simdjson::dom::object& object) {
  if (object.size() <= kFewKeys) {
    for (auto a = object.begin(); a != object.end(); ++a) {
      for (auto b = object.begin(); b != a; ++b) {
        if (a.key() == b.key()) return true;
      }
    }
    return false;
  }
  absl::flat_hash_set<absl::string_view> seen;
  for (const auto& [key, value] : object) {
    if (!seen.insert(absl::string_view(key.data(), key.size())).second) return true;
  }
  return false;
}

// The parser has bounded the nesting, and with it this recursion.
bool AnyDuplicateKeys(const Value& value) {
  if (value.type() == element_type::OBJECT) {
    const simdjson::dom::object object = value.get_object().value_unsafe();
    if (HasDuplicateKeys(object)) return true;
    for (const auto& [key, inner] : object) {
      if (AnyDuplicateKeys(inner)) return true;
    }
  } else if (value.type() == element_type::ARRAY) {
    for (const Value inner : value.get_array().value_unsafe()) {
      if (AnyDuplicateKeys(inner)) return true;
    }
  }
  return false;
}

std::string WhatIsWrong(error_code code) {
  switch (code) {
    case simdjson::EMPTY:
      return "the body is empty; send a JSON object";
    case simdjson::DEPTH_ERROR:
      return absl::StrCat("the JSON is nested deeper than ", kJsonDepthMax, " levels");
    case simdjson::UTF8_ERROR:
      return "the body is not valid UTF-8";
    case simdjson::STRING_ERROR:
    case simdjson::UNCLOSED_STRING:
    case simdjson::UNESCAPED_CHARS:
      return "the JSON has a string that is broken (a lone surrogate, a bad escape, a control "
             "character or no end)";
    case simdjson::NUMBER_ERROR:
      return "the JSON has a number that is broken or too large";
    default:
      return "the body is not valid JSON";
  }
}

}  // namespace

Document::Document() : parser_(std::make_unique<simdjson::dom::parser>()) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;
Document::~Document() = default;

absl::StatusOr<Document> Document::Parse(std::string_view text) {
  if (text.empty()) return Invalid("", WhatIsWrong(simdjson::EMPTY));
  Document document;
  // simdjson stores no more than 4 GiB; a body is far below.
  if (text.size() >= simdjson::SIMDJSON_MAXSIZE_BYTES) return Invalid("", "the body is too large");
  // simdjson refuses a document that reaches its limit.
  if (document.parser_->allocate(text.size(), kJsonDepthMax + 1) != simdjson::SUCCESS) {
    return absl::ResourceExhaustedError("no memory to read the body");
  }
  const error_code error =
      document.parser_->parse(text.data(), text.size(), /*realloc_if_needed=*/true)
          .get(document.root_);
  if (error != simdjson::SUCCESS) return Invalid("", WhatIsWrong(error));
  if (document.root_.type() != element_type::OBJECT) {
    return Invalid("", "the body must be a JSON object");
  }
  if (AnyDuplicateKeys(document.root_)) {
    return Invalid("", "the JSON has an object in which a key appears twice");
  }
  return document;
}

simdjson::dom::object Document::root() const { return root_.get_object().value_unsafe(); }

bool IsInteger(const Value& value, int64_t* out) {
  return value.type() == element_type::INT64 && value.get(*out) == simdjson::SUCCESS;
}

bool IsNumber(const Value& value, double* out) {
  const element_type type = value.type();
  const bool number =
      type == element_type::INT64 || type == element_type::UINT64 || type == element_type::DOUBLE;
  return number && value.get(*out) == simdjson::SUCCESS;
}

bool IsString(const Value& value, std::string_view* out) {
  return value.type() == element_type::STRING && value.get(*out) == simdjson::SUCCESS;
}

bool IsBoolean(const Value& value, bool* out) {
  return value.type() == element_type::BOOL && value.get(*out) == simdjson::SUCCESS;
}

}  // namespace cuvil::server::openai
