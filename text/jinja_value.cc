#include "text/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"

namespace cuvil::text::jinja {
namespace {

// Small mappings are searched in order; an index costs more than it saves there.
constexpr size_t kIndexFrom = 16;

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(value);
  // Python switches to an exponent at these bounds.
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  std::string text(buffer, result.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendRepr(const Value& value, MarkedString* out);

// A Python string literal; quotes and escapes belong to the template.
void AppendQuoted(const MarkedString& text, MarkedString* out) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->Append(std::string_view(&quote, 1), true);
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    std::string escape;
    if (c == quote || c == '\\') escape = {'\\', c};
    if (c == '\n') escape = "\\n";
    if (c == '\r') escape = "\\r";
    if (c == '\t') escape = "\\t";
    if (escape.empty() && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)) {
      escape = absl::StrFormat("\\x%02x", static_cast<uint8_t>(c));
    }
    if (escape.empty()) continue;
    out->Append(text.Cut(plain, i));
    out->Append(escape, false);
    plain = i + 1;
  }
  out->Append(text.Cut(plain, text.size()));
  out->Append(std::string_view(&quote, 1), true);
}

void AppendListRepr(const List& list, MarkedString* out) {
  out->Append(list.tuple ? "(" : "[", true);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out->Append(", ", true);
    AppendRepr(list.items[i], out);
  }
  if (list.tuple && list.items.size() == 1) out->Append(",", true);
  out->Append(list.tuple ? ")" : "]", true);
}

void AppendDictRepr(const Dict& dict, MarkedString* out) {
  out->Append("{", true);
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out->Append(", ", true);
    AppendQuoted(dict.items[i].first, out);
    out->Append(": ", true);
    AppendRepr(dict.items[i].second, out);
  }
  out->Append("}", true);
}

void AppendRepr(const Value& value, MarkedString* out) {
  if (const MarkedString* text = value.string()) {
    AppendQuoted(*text, out);
  } else {
    out->Append(Print(value));
  }
}

void AppendJsonString(const MarkedString& text, MarkedString* out) {
  out->Append("\"", true);
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    std::string escape;
    switch (c) {
      case '"':
        escape = "\\\"";
        break;
      case '\\':
        escape = "\\\\";
        break;
      case '\n':
        escape = "\\n";
        break;
      case '\r':
        escape = "\\r";
        break;
      case '\t':
        escape = "\\t";
        break;
      case '\b':
        escape = "\\b";
        break;
      case '\f':
        escape = "\\f";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) escape = absl::StrFormat("\\u%04x", c);
    }
    if (escape.empty()) continue;
    out->Append(text.Cut(plain, i));
    out->Append(escape, false);
    plain = i + 1;
  }
  out->Append(text.Cut(plain, text.size()));
  out->Append("\"", true);
}

void NewLine(int indent, int level, MarkedString* out) {
  if (indent < 0) return;
  out->Append("\n" + std::string(static_cast<size_t>(indent) * level, ' '), true);
}

bool AppendJson(const Value& value, int indent, int level, MarkedString* out) {
  if (const MarkedString* text = value.string()) {
    AppendJsonString(*text, out);
    return true;
  }
  const char* separator = indent < 0 ? ", " : ",";
  if (const List* list = value.list()) {
    out->Append("[", true);
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out->Append(separator, true);
      NewLine(indent, level + 1, out);
      if (!AppendJson(list->items[i], indent, level + 1, out)) return false;
    }
    if (!list->items.empty()) NewLine(indent, level, out);
    out->Append("]", true);
    return true;
  }
  if (const Dict* dict = value.dict()) {
    out->Append("{", true);
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out->Append(separator, true);
      NewLine(indent, level + 1, out);
      AppendJsonString(dict->items[i].first, out);
      out->Append(": ", true);
      if (!AppendJson(dict->items[i].second, indent, level + 1, out)) return false;
    }
    if (!dict->items.empty()) NewLine(indent, level, out);
    out->Append("}", true);
    return true;
  }
  if (value.is_none()) {
    out->Append("null", true);
  } else if (const bool* b = value.boolean()) {
    out->Append(*b ? "true" : "false", true);
  } else if (value.is_number()) {
    out->Append(Print(value));
  } else {
    return false;
  }
  return true;
}

}  // namespace

size_t Dict::Position(std::string_view key) const {
  if (items.size() > kIndexFrom) {
    const auto found = index.find(std::string(key));
    return found == index.end() ? items.size() : found->second;
  }
  size_t at = 0;
  while (at < items.size() && items[at].first.bytes() != key) ++at;
  return at;
}

const Value* Dict::Find(std::string_view key) const {
  const size_t at = Position(key);
  return at == items.size() ? nullptr : &items[at].second;
}

void Dict::Set(const MarkedString& key, Value value) {
  depth = std::max(depth, 1 + value.depth());
  weight = std::min(kWeightMax, weight + key.size() + value.weight());
  if (const size_t at = Position(key.bytes()); at != items.size()) {
    items[at].second = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
  if (items.size() <= kIndexFrom) return;
  // The first time all keys are new to the index.
  for (size_t i = index.empty() ? 0 : items.size() - 1; i < items.size(); ++i) {
    index.emplace(items[i].first.bytes(), i);
  }
}

Value Value::Of(MarkedString value) {
  return Value(Data(std::make_shared<const MarkedString>(std::move(value))));
}

Value Value::Of(List value) {
  for (const Value& item : value.items) {
    value.depth = std::max(value.depth, 1 + item.depth());
    value.weight = std::min(kWeightMax, value.weight + item.weight());
  }
  return Value(Data(std::make_shared<const List>(std::move(value))));
}

Value Value::Of(Dict value) { return Value(Data(std::make_shared<const Dict>(std::move(value)))); }

Value Value::OfNamespace(Dict value) {
  return Value(Data(std::make_shared<Dict>(std::move(value))));
}

Value Value::FromJson(const Json& json, bool trusted) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Of(json.get<bool>());
    case Json::value_t::number_integer:
      return Of(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > INT64_MAX) return Of(static_cast<double>(number));
      return Of(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Of(json.get<double>());
    case Json::value_t::string:
      return Of(json.get_ref<const std::string&>(), trusted);
    case Json::value_t::array: {
      List list;
      for (const Json& item : json) list.items.push_back(FromJson(item, trusted));
      return Of(std::move(list));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        dict.Set(MarkedString(key, trusted), FromJson(item, trusted));
      }
      return Of(std::move(dict));
    }
    default:
      return OfNone();
  }
}

const MarkedString* Value::string() const {
  const auto* held = std::get_if<std::shared_ptr<const MarkedString>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
const List* Value::list() const {
  const auto* held = std::get_if<std::shared_ptr<const List>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
const Dict* Value::dict() const {
  const auto* held = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
Dict* Value::name_space() const {
  const auto* held = std::get_if<std::shared_ptr<Dict>>(&data_);
  return held == nullptr ? nullptr : held->get();
}

bool Value::AsInteger(int64_t* out) const {
  if (integer() != nullptr) {
    *out = *integer();
    return true;
  }
  if (boolean() == nullptr) return false;
  *out = *boolean() ? 1 : 0;
  return true;
}

bool Value::AsDouble(double* out) const {
  int64_t whole = 0;
  if (AsInteger(&whole)) {
    *out = static_cast<double>(whole);
    return true;
  }
  if (floating() == nullptr) return false;
  *out = *floating();
  return true;
}

bool Value::Truthy() const {
  double number = 0;
  if (AsDouble(&number)) return number != 0;
  if (string() != nullptr) return !string()->empty();
  if (list() != nullptr) return !list()->items.empty();
  if (dict() != nullptr) return !dict()->items.empty();
  return !is_undefined() && !is_none();
}

int Value::depth() const {
  if (list() != nullptr) return list()->depth;
  return dict() != nullptr ? dict()->depth : 0;
}

const char* Value::kind() const {
  constexpr const char* kKinds[] = {"undefined",   "none",       "a boolean", "an integer",
                                    "a number",    "a string",   "a list",    "a mapping",
                                    "a namespace", "a function", "a macro"};
  return kKinds[data_.index()];
}

size_t Value::weight() const {
  if (string() != nullptr) return 8 + string()->size();
  if (list() != nullptr) return list()->weight;
  return dict() != nullptr ? dict()->weight : 8;
}

bool Equal(const Value& a, const Value& b) {
  int64_t whole_a = 0, whole_b = 0;
  if (a.AsInteger(&whole_a) && b.AsInteger(&whole_b)) return whole_a == whole_b;
  double number_a = 0, number_b = 0;
  if (a.AsDouble(&number_a) && b.AsDouble(&number_b)) return number_a == number_b;
  if (a.string() != nullptr && b.string() != nullptr) {
    return a.string()->bytes() == b.string()->bytes();
  }
  if (a.list() != nullptr && b.list() != nullptr) {
    const auto &x = a.list()->items, &y = b.list()->items;
    return a.list()->tuple == b.list()->tuple &&
           std::equal(x.begin(), x.end(), y.begin(), y.end(), Equal);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->items.size() != b.dict()->items.size()) return false;
    for (const auto& [key, value] : a.dict()->items) {
      const Value* other = b.dict()->Find(key.bytes());
      if (other == nullptr || !Equal(value, *other)) return false;
    }
    return true;
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

MarkedString Print(const Value& value) {
  if (const MarkedString* text = value.string()) return *text;
  MarkedString out;
  if (const bool* b = value.boolean()) out.Append(*b ? "True" : "False", true);
  if (const int64_t* i = value.integer()) out.Append(std::to_string(*i), true);
  if (const double* d = value.floating()) out.Append(FloatText(*d), true);
  if (value.is_none()) out.Append("None", true);
  if (const List* list = value.list()) AppendListRepr(*list, &out);
  if (const Dict* dict = value.dict()) AppendDictRepr(*dict, &out);
  return out;
}

bool PrintJson(const Value& value, int indent, MarkedString* out) {
  return AppendJson(value, indent, 0, out);
}

}  // namespace cuvil::text::jinja
