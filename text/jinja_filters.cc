// The filters and tests of templates.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "text/jinja_runtime.h"
#include "text/jinja_text.h"

namespace cuvil::text::jinja {
namespace {

// -- tests

std::optional<bool> TypeTest(const std::string& name, const Value& v) {
  if (name == "defined") return !v.is_undefined();
  if (name == "undefined") return v.is_undefined();
  if (name == "none") return v.is_none();
  if (name == "string") return v.string() != nullptr;
  if (name == "mapping") return v.dict() != nullptr;
  if (name == "sequence" || name == "iterable") {
    const bool empty = name == "iterable" && v.is_undefined();
    return empty || v.string() != nullptr || v.list() != nullptr || v.dict() != nullptr;
  }
  if (name == "boolean") return v.boolean() != nullptr;
  if (name == "integer") return v.integer() != nullptr;
  if (name == "float") return v.floating() != nullptr;
  if (name == "number") return v.is_number() || v.boolean() != nullptr;
  if (name == "true") return v.boolean() != nullptr && *v.boolean();
  if (name == "false") return v.boolean() != nullptr && !*v.boolean();
  if (name == "callable") return v.builtin() != nullptr || v.macro() != nullptr;
  return std::nullopt;
}

bool Divides(Runtime& rt, const Value& value, const Value& by) {
  int64_t number = 0, divisor = 0;
  if (!value.AsInteger(&number) || !by.AsInteger(&divisor) || divisor == 0) {
    rt.Fail("'divisibleby' takes integers, and one other than 0");
    return false;
  }
  return divisor == -1 || number % divisor == 0;
}

// -- filters

using Filter = Value (*)(Runtime&, const Value&, const Arguments&);

Value First(Runtime& rt, const Value& v, const Arguments&) {
  if (v.list() != nullptr) return v.list()->items.empty() ? Value() : v.list()->items.front();
  const std::vector<Value> all = Elements(rt, v);
  return all.empty() ? Value() : all.front();
}

Value Last(Runtime& rt, const Value& v, const Arguments&) {
  if (v.list() != nullptr) return v.list()->items.empty() ? Value() : v.list()->items.back();
  const std::vector<Value> all = Elements(rt, v);
  return all.empty() ? Value() : all.back();
}

Value LengthFilter(Runtime& rt, const Value& v, const Arguments&) {
  return Value::Of(Length(rt, v));
}

Value Default(Runtime&, const Value& v, const Arguments& arguments) {
  const Value* fallback = arguments.Find(0, "default_value");
  const Value* falsy = arguments.Find(1, "boolean");
  const bool use = v.is_undefined() || (falsy != nullptr && falsy->Truthy() && !v.Truthy());
  if (!use) return v;
  return fallback == nullptr ? Value::Of("", true) : *fallback;
}

Value StringFilter(Runtime& rt, const Value& v, const Arguments&) {
  if (!rt.Bytes(v.weight())) return Value();
  return rt.Made(Print(v));
}

Value Trim(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* chars = arguments.Find(0, "chars");
  const bool given = chars != nullptr && chars->string() != nullptr;
  const MarkedString text = Print(v);
  if (given) rt.Bytes(chars->string()->size() * text.size());
  return rt.Made(Strip(text, given ? &chars->string()->bytes() : nullptr, true, true));
}

template <Case kTo>
Value CaseFilter(Runtime& rt, const Value& v, const Arguments&) {
  return rt.Made(ChangeCase(Print(v), kTo));
}

Value ReplaceFilter(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* from = arguments.Find(0, "old");
  const Value* to = arguments.Find(1, "new");
  if (from == nullptr || to == nullptr) return rt.Fail("replace takes two strings");
  return Replace(rt, Print(v), *from, *to, arguments.Find(2, "count"));
}

Value Join(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* separator = arguments.Find(0, "d");
  const Value* attribute = arguments.Find(1, "attribute");
  const MarkedString between = separator == nullptr ? MarkedString() : Print(*separator);
  MarkedString out;
  bool first = true;
  for (const Value& item : Elements(rt, v)) {
    const Value part = attribute == nullptr ? item : GetItem(rt, item, *attribute);
    if (!rt.Steps() || !rt.Bytes(part.weight() + between.size())) return Value();
    if (!first) out.Append(between);
    first = false;
    out.Append(Print(part));
    if (out.size() > kOutputMax) break;  // refused below
  }
  return rt.Made(std::move(out));
}

Value ListFilter(Runtime& rt, const Value& v, const Arguments&) {
  return rt.Made(Value::Of(List{.items = Elements(rt, v)}));
}

Value Reverse(Runtime& rt, const Value& v, const Arguments&) {
  if (v.string() != nullptr) {
    return Slice(rt, v, Value::OfNone(), Value::OfNone(), Value::Of(int64_t{-1}));
  }
  List out{.items = Elements(rt, v)};
  std::reverse(out.items.begin(), out.items.end());
  return rt.Made(Value::Of(std::move(out)));
}

Value Int(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* fallback = arguments.Find(0, "default");
  int64_t whole = 0;
  if (v.AsInteger(&whole)) return Value::Of(whole);
  double real = 0;
  const bool is_real = v.AsDouble(&real);
  if (!is_real && v.string() != nullptr) {
    const std::string text = Strip(*v.string(), nullptr, true, true).bytes();
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, whole);
    if (parsed.ec == std::errc() && parsed.ptr == end) return Value::Of(whole);
    const auto as_real = std::from_chars(text.data(), end, real);
    if (as_real.ec != std::errc() || as_real.ptr != end) real = NAN;
  }
  constexpr double kBound = 9.2e18;  // inside the integers' range
  if ((is_real || v.string() != nullptr) && std::fabs(real) < kBound) {
    return Value::Of(static_cast<int64_t>(real));
  }
  return fallback == nullptr ? Value::Of(int64_t{0}) : *fallback;
}

Value Float(Runtime&, const Value& v, const Arguments& arguments) {
  const Value* fallback = arguments.Find(0, "default");
  double real = 0;
  if (v.AsDouble(&real)) return Value::Of(real);
  if (v.string() != nullptr) {
    const std::string text = Strip(*v.string(), nullptr, true, true).bytes();
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, real);
    if (parsed.ec == std::errc() && parsed.ptr == end) return Value::Of(real);
  }
  return fallback == nullptr ? Value::Of(0.0) : *fallback;
}

Value Abs(Runtime& rt, const Value& v, const Arguments&) {
  int64_t whole = 0;
  double real = 0;
  if (v.AsInteger(&whole) && whole != INT64_MIN) return Value::Of(whole < 0 ? -whole : whole);
  if (v.AsDouble(&real)) return Value::Of(std::fabs(real));
  return rt.Fail(absl::StrCat("abs does not take ", v.kind()));
}

Value ToJson(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* given = arguments.Find(static_cast<size_t>(-1), "indent");
  if (given == nullptr) given = arguments.Find(0, "indent");
  int64_t indent = -1;
  if (given != nullptr && !given->is_none()) {
    if (!given->AsInteger(&indent) || indent < 0 || indent > 16) {
      return rt.Fail("the indent of tojson must be an integer from 0 to 16");
    }
  }
  // Each level may indent each line.
  if (!rt.Bytes(v.weight() * (indent > 0 ? static_cast<size_t>(indent) : 1))) return Value();
  MarkedString out;
  if (!PrintJson(v, static_cast<int>(indent), &out)) {
    return rt.Fail("tojson was given a value that JSON cannot hold");
  }
  return rt.Made(std::move(out));
}

Value Items(Runtime& rt, const Value& v, const Arguments&) {
  if (v.is_undefined()) return rt.Made(Value::Of(List{}));
  return CallMethod(rt, v, "items", {});
}

Value DictSort(Runtime& rt, const Value& v, const Arguments&) {
  if (v.dict() == nullptr) return rt.Fail("dictsort takes a mapping");
  const Value pairs = CallMethod(rt, v, "items", {});
  if (pairs.list() == nullptr) return Value();
  List out = *pairs.list();
  const auto key = [](const Value& pair) {
    return ChangeCase(*pair.list()->items[0].string(), Case::kLower).bytes();
  };
  if (!rt.Bytes(v.weight() * 64)) return Value();
  std::stable_sort(out.items.begin(), out.items.end(),
                   [&](const Value& a, const Value& b) { return key(a) < key(b); });
  return rt.Made(Value::Of(std::move(out)));
}

Value Indent(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* width = arguments.Find(0, "width");
  const Value* first = arguments.Find(1, "first");
  const Value* blank = arguments.Find(2, "blank");
  int64_t count = 4;
  if (width != nullptr && (!width->AsInteger(&count) || count < 0 || count > 64)) {
    return rt.Fail("the width of indent must be an integer from 0 to 64");
  }
  const MarkedString text = Print(v);
  if (!rt.Bytes(text.size() * static_cast<size_t>(count + 1))) return Value();
  const MarkedString pad(std::string(static_cast<size_t>(count), ' '), true);
  MarkedString out;
  bool is_first = true;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.bytes().find('\n', at), text.size());
    const bool wanted = is_first ? first != nullptr && first->Truthy()
                                 : end > at || (blank != nullptr && blank->Truthy());
    if (wanted) out.Append(pad);
    out.Append(text.Cut(at, std::min(end + 1, text.size())));
    if (out.size() > kOutputMax) break;  // refused below
    is_first = false;
    at = end + 1;
  }
  return rt.Made(std::move(out));
}

// A dotted path of keys.
Value GetPath(Runtime& rt, Value value, const Value& path) {
  if (path.string() == nullptr) return GetItem(rt, value, path);
  const std::string& text = path.string()->bytes();
  for (size_t at = 0; at <= text.size() && !rt.failed();) {
    const size_t end = std::min(text.find('.', at), text.size());
    value = GetItem(rt, value, Value::Of(std::string_view(text).substr(at, end - at), true));
    at = end + 1;
  }
  return value;
}

Arguments Tail(const Arguments& arguments, size_t from) {
  Arguments out;
  for (size_t i = from; i < arguments.positional.size(); ++i) {
    out.positional.push_back(arguments.positional[i]);
  }
  return out;
}

Value Map(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value* attribute = arguments.Find(static_cast<size_t>(-1), "attribute");
  const Value* fallback = arguments.Find(static_cast<size_t>(-1), "default");
  const Value* filter = arguments.Find(0, "filter");
  List out;
  for (const Value& item : Elements(rt, v)) {
    if (!rt.Steps()) return Value();
    if (attribute != nullptr) {
      Value found = GetPath(rt, item, *attribute);
      if (found.is_undefined() && fallback != nullptr) found = *fallback;
      out.items.push_back(std::move(found));
    } else if (filter != nullptr && filter->string() != nullptr) {
      out.items.push_back(ApplyFilter(rt, filter->string()->bytes(), item, Tail(arguments, 1)));
    } else {
      return rt.Fail("map takes an attribute or the name of a filter");
    }
  }
  return rt.Made(Value::Of(std::move(out)));
}

// select, reject (by the element) and selectattr, rejectattr (by an attribute of it).
Value SelectBy(Runtime& rt, const Value& v, const Arguments& arguments, bool by_attribute,
               bool keep) {
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) return rt.Fail("expected an attribute's name");
  const Value* test = arguments.Find(test_at, "test");
  if (test != nullptr && test->string() == nullptr) return rt.Fail("a test's name is a string");
  List out;
  for (const Value& item : Elements(rt, v)) {
    if (!rt.Steps()) return Value();
    const Value subject = by_attribute ? GetPath(rt, item, arguments.positional[0]) : item;
    const bool passes = test == nullptr ? subject.Truthy()
                                        : ApplyTest(rt, test->string()->bytes(), subject,
                                                    Tail(arguments, test_at + 1));
    if (passes == keep) out.items.push_back(item);
  }
  return rt.Made(Value::Of(std::move(out)));
}

template <bool kByAttribute, bool kKeep>
Value Select(Runtime& rt, const Value& v, const Arguments& arguments) {
  return SelectBy(rt, v, arguments, kByAttribute, kKeep);
}

Value Same(Runtime&, const Value& v, const Arguments&) { return v; }

const absl::flat_hash_map<std::string, Filter>& Filters() {
  static const auto* filters = new absl::flat_hash_map<std::string, Filter>{
      {"abs", Abs},
      {"capitalize", CaseFilter<Case::kCapitalize>},
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"float", Float},
      {"indent", Indent},
      {"int", Int},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"lower", CaseFilter<Case::kLower>},
      {"map", Map},
      {"reject", Select<false, false>},
      {"rejectattr", Select<true, false>},
      {"replace", ReplaceFilter},
      {"reverse", Reverse},
      {"safe", Same},
      {"select", Select<false, true>},
      {"selectattr", Select<true, true>},
      {"string", StringFilter},
      {"title", CaseFilter<Case::kTitle>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"upper", CaseFilter<Case::kUpper>},
  };
  return *filters;
}

}  // namespace

bool ApplyTest(Runtime& rt, const std::string& name, const Value& v, const Arguments& arguments) {
  if (const std::optional<bool> known = TypeTest(name, v)) return *known;
  const Value* other = arguments.Find(0, "other");
  const bool needs_other = name == "equalto" || name == "eq" || name == "==" || name == "ne" ||
                           name == "!=" || name == "in" || name == "divisibleby" || name == "lt" ||
                           name == "gt" || name == "sameas";
  if (needs_other && other == nullptr) {
    rt.Fail(absl::StrCat("the test '", name, "' takes an argument"));
    return false;
  }
  if (needs_other && !rt.Bytes(v.weight() + other->weight())) return false;
  if (name == "equalto" || name == "eq" || name == "==" || name == "sameas") {
    return Equal(v, *other);
  }
  if (name == "ne" || name == "!=") return !Equal(v, *other);
  if (name == "in") return Contains(rt, v, *other);
  if (name == "lt") return Less(rt, v, *other);
  if (name == "gt") return Less(rt, *other, v);
  if (name == "divisibleby") return Divides(rt, v, *other);
  int64_t whole = 0;
  if (name == "odd" || name == "even") {
    if (!v.AsInteger(&whole)) rt.Fail(absl::StrCat("'", name, "' takes an integer"));
    return (whole % 2 != 0) == (name == "odd");
  }
  rt.Fail(absl::StrCat("the test '", name, "' is not supported"));
  return false;
}

Value ApplyFilter(Runtime& rt, const std::string& name, const Value& operand,
                  const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) {
    return rt.Fail(absl::StrCat("the filter '", name, "' is not supported"));
  }
  if (!rt.Bytes(operand.weight())) return Value();
  return found->second(rt, operand, arguments);
}

}  // namespace cuvil::text::jinja
