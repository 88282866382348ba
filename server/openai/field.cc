#include "server/openai/field.h"

#include <algorithm>
#include <type_traits>

#include "server/openai/error.h"

namespace cuvil::server::openai {
namespace {

template <typename T, typename... Options>
constexpr bool kIsOneOf = (std::is_same_v<T, Options> || ...);

std::string RangeOf(const Field& field) {
  const char* from = field.above_low ? "above " : "from ";
  return absl::StrCat(from, field.low, " to ", field.high);
}

absl::StatusOr<int64_t> CheckInteger(const Field& field, int64_t number) {
  // Limits are whole numbers; those beyond 2^53 mean "any 64-bit integer".
  const bool any = field.high >= 9.0e15;
  if (!any &&
      (static_cast<double>(number) < field.low || static_cast<double>(number) > field.high)) {
    return Invalid(field.name,
                   absl::StrCat(field.name, " is ", number, "; give an integer ", RangeOf(field)));
  }
  return number;
}

absl::StatusOr<int64_t> ReadInteger(const Field& field, const Value& value) {
  int64_t number = 0;
  if (IsInteger(value, &number)) return CheckInteger(field, number);
  return Invalid(field.name, absl::StrCat(field.name, " must be an integer ", RangeOf(field)));
}

absl::StatusOr<double> CheckNumber(const Field& field, double number) {
  const bool fits = number >= field.low && number <= field.high;  // false for NaN
  if (!fits || (field.above_low && number == field.low)) {
    return Invalid(field.name,
                   absl::StrCat(field.name, " is ", number, "; give a number ", RangeOf(field)));
  }
  return number;
}

absl::StatusOr<double> ReadNumber(const Field& field, const Value& value) {
  double number = 0;
  if (IsNumber(value, &number)) return CheckNumber(field, number);
  return Invalid(field.name, absl::StrCat(field.name, " must be a number ", RangeOf(field)));
}

absl::StatusOr<std::string> CheckString(const Field& field, std::string_view text) {
  if (text.size() > static_cast<size_t>(field.high)) {
    return Invalid(field.name, absl::StrCat(field.name, " has ", text.size(),
                                            " bytes; the limit is ", field.high));
  }
  return std::string(text);
}

absl::StatusOr<std::string> ReadString(const Field& field, const Value& value) {
  std::string_view text;
  if (IsString(value, &text)) return CheckString(field, text);
  return Invalid(field.name, absl::StrCat(field.name, " must be a string"));
}

absl::Status CheckRefused(const Field& field, const Value& value) {
  bool flag = true;
  std::string_view text = "x";
  const bool off =
      (IsBoolean(value, &flag) && !flag) || (IsString(value, &text) && text.empty()) ||
      (value.type() == element_type::ARRAY && value.get_array().value_unsafe().size() == 0);
  if (off) return absl::OkStatus();
  return Invalid(field.name, absl::StrCat(field.name, " is not supported; leave it out"),
                 "unsupported_parameter");
}

// Strings of fields without effect have limits too: a client's mistake shows early.
absl::Status CheckIgnored(const Field& field, const Value& value) {
  return field.high > 0 ? ReadString(field, value).status() : absl::OkStatus();
}

struct Setter {
  const Field& field;
  const Value& value;
  RequestBody* body;

  absl::Status operator()(int64_t RequestBody::* target) const {
    ASSIGN_OR_RETURN(body->*target, ReadInteger(field, value));
    return absl::OkStatus();
  }
  absl::Status operator()(std::optional<int64_t> RequestBody::* target) const {
    ASSIGN_OR_RETURN(body->*target, ReadInteger(field, value));
    return absl::OkStatus();
  }
  absl::Status operator()(double RequestBody::* target) const {
    ASSIGN_OR_RETURN(body->*target, ReadNumber(field, value));
    return absl::OkStatus();
  }
  absl::Status operator()(bool RequestBody::* target) const {
    if (IsBoolean(value, &(body->*target))) return absl::OkStatus();
    return Invalid(field.name, absl::StrCat(field.name, " must be true or false"));
  }
  absl::Status operator()(std::string RequestBody::* target) const {
    ASSIGN_OR_RETURN(body->*target, ReadString(field, value));
    return absl::OkStatus();
  }
  absl::Status operator()(Reader read) const { return About(field.name, read(field, value, body)); }
  absl::Status operator()(Ignored) const { return CheckIgnored(field, value); }
  absl::Status operator()(Refused) const { return CheckRefused(field, value); }
};

Json RangeSchema(const Field& field, const char* type) {
  Json schema = {{"type", type}};
  const auto number = [type](double value) {
    return std::string_view(type) == "integer" ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  if (field.high < 9.0e15) {
    schema[field.above_low ? "exclusiveMinimum" : "minimum"] = number(field.low);
    schema["maximum"] = number(field.high);
  }
  return schema;
}

Json SchemaOf(const Field& field) {
  Json schema = std::visit(
      [&field]<typename T>(const T&) -> Json {
        if constexpr (kIsOneOf<T, int64_t RequestBody::*, std::optional<int64_t> RequestBody::*>) {
          return RangeSchema(field, "integer");
        } else if constexpr (kIsOneOf<T, double RequestBody::*>) {
          return RangeSchema(field, "number");
        } else if constexpr (kIsOneOf<T, bool RequestBody::*>) {
          return {{"type", "boolean"}};
        } else if constexpr (kIsOneOf<T, std::string RequestBody::*>) {
          return {{"type", "string"}, {"maxLength", static_cast<int64_t>(field.high)}};
        } else {
          return field.schema == nullptr ? Json::object() : Json::parse(field.schema);
        }
      },
      field.target);
  schema["description"] = field.doc;
  if (std::holds_alternative<Refused>(field.target)) schema["deprecated"] = true;
  return schema;
}

}  // namespace

FieldTable::FieldTable(std::string title, std::vector<std::string> required,
                       std::vector<absl::Span<const Field>> parts)
    : title_(std::move(title)), required_(std::move(required)) {
  for (const absl::Span<const Field> part : parts) {
    for (const Field& field : part) fields_.push_back(&field);
  }
  const auto name = [](const Field* field) { return std::string_view(field->name); };
  std::ranges::sort(fields_, {}, name);
  CUVIL_CHECK(std::ranges::adjacent_find(fields_, {}, name) == fields_.end(), "a field twice");
}

const Field* FieldTable::Find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      fields_, name, {}, [](const Field* field) { return std::string_view(field->name); });
  return at != fields_.end() && name == (*at)->name ? *at : nullptr;
}

absl::StatusOr<RequestBody> FieldTable::Parse(std::string_view text) const {
  ASSIGN_OR_RETURN(const Document document, Document::Parse(text));
  RequestBody body;
  for (const auto& [key, value] : document.root()) {
    const Field* field = Find(key);
    if (field == nullptr || value.is_null()) continue;
    RETURN_IF_ERROR(std::visit(Setter{*field, value, &body}, field->target));
  }
  return body;
}

absl::Status FieldTable::SetInteger(std::string_view name, int64_t value, RequestBody* body) const {
  const Field* field = Find(name);
  CUVIL_CHECK(field != nullptr, name);
  ASSIGN_OR_RETURN(const int64_t number, CheckInteger(*field, value));
  if (const auto* plain = std::get_if<int64_t RequestBody::*>(&field->target)) {
    body->** plain = number;
  } else {
    body->*std::get<std::optional<int64_t> RequestBody::*>(field->target) = number;
  }
  return absl::OkStatus();
}

absl::Status FieldTable::SetNumber(std::string_view name, double value, RequestBody* body) const {
  const Field* field = Find(name);
  CUVIL_CHECK(field != nullptr, name);
  ASSIGN_OR_RETURN(body->*std::get<double RequestBody::*>(field->target),
                   CheckNumber(*field, value));
  return absl::OkStatus();
}

absl::Status FieldTable::SetString(std::string_view name, std::string_view value,
                                   RequestBody* body) const {
  const Field* field = Find(name);
  CUVIL_CHECK(field != nullptr, name);
  ASSIGN_OR_RETURN(body->*std::get<std::string RequestBody::*>(field->target),
                   CheckString(*field, value));
  return absl::OkStatus();
}

Json FieldTable::Schema() const {
  Json properties = Json::object();
  for (const Field* field : fields_) properties[field->name] = SchemaOf(*field);
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required_.empty()) schema["required"] = required_;
  return schema;
}

}  // namespace cuvil::server::openai
