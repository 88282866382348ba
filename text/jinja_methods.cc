// The methods that strings and mappings have in templates. There is no other way from a value to
// code: what is not named here does not exist.
#include <string.h>

#include <algorithm>

#include "text/jinja_runtime.h"
#include "text/jinja_text.h"
#include "text/unicode_class.h"
#include "text/utf8.h"

namespace cuvil::text::jinja {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
bool IsAsciiLetter(char c) { return Lower(c) >= 'a' && Lower(c) <= 'z'; }

// Whether the character at `at` is one that Strip removes.
bool Strippable(std::string_view text, size_t at, int length, const std::string* chars) {
  if (chars == nullptr) return IsSpace(ClassOf(DecodeUtf8(text, at).code));
  return chars->find(text.substr(at, length)) != std::string::npos;
}

size_t PreviousChar(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

const std::string* TextOf(Runtime& rt, const Value* value, const char* what) {
  if (value == nullptr || value->string() == nullptr) {
    rt.Fail(absl::StrCat(what, " takes a string"));
    return nullptr;
  }
  return &value->string()->bytes();
}

// White-space separated words, at most `most` cuts.
void SplitWords(const MarkedString& text, int64_t most, List* out) {
  const std::string& bytes = text.bytes();
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size()) {
      const Utf8Char c = DecodeUtf8(bytes, at);
      if (IsSpace(ClassOf(c.code)) != spaces) break;
      at += c.length;
    }
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    const size_t begin = at;
    if (most >= 0 && static_cast<int64_t>(out->items.size()) == most) {
      out->items.push_back(Value::Of(text.Cut(begin, bytes.size())));
      return;
    }
    skip(false);
    out->items.push_back(Value::Of(text.Cut(begin, at)));
  }
}

Value SplitMethod(Runtime& rt, const MarkedString& text, const Arguments& arguments) {
  const Value* separator = arguments.Find(0, "sep");
  const Value* limit = arguments.Find(1, "maxsplit");
  int64_t most = -1;
  if (limit != nullptr && !limit->AsInteger(&most)) return rt.Fail("maxsplit must be an integer");
  if (!rt.Bytes(text.size())) return Value();
  List out;
  if (separator == nullptr || separator->is_none()) {
    SplitWords(text, most, &out);
    return rt.Made(Value::Of(std::move(out)));
  }
  const std::string* by = TextOf(rt, separator, "split");
  if (by == nullptr) return Value();
  if (by->empty()) return rt.Fail("split takes a separator that is not empty");
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(out.items.size()) < most) {
    const size_t found = FindText(text.bytes(), *by, at);
    if (found == std::string::npos) break;
    if (!rt.Steps()) return Value();
    out.items.push_back(Value::Of(text.Cut(at, found)));
    at = found + by->size();
  }
  out.items.push_back(Value::Of(text.Cut(at, text.size())));
  return rt.Made(Value::Of(std::move(out)));
}

Value StripMethod(Runtime& rt, const MarkedString& text, const Arguments& arguments, bool left,
                  bool right) {
  const Value* chars = arguments.Find(0, "chars");
  const std::string* set = nullptr;
  if (chars != nullptr && !chars->is_none()) {
    set = TextOf(rt, chars, "strip");
    if (set == nullptr) return Value();
    rt.Bytes(set->size() * text.size());
  }
  return rt.Made(Strip(text, set, left, right));
}

Value StringMethod(Runtime& rt, const MarkedString& text, const std::string& name,
                   const Arguments& arguments) {
  if (name == "strip") return StripMethod(rt, text, arguments, true, true);
  if (name == "lstrip") return StripMethod(rt, text, arguments, true, false);
  if (name == "rstrip") return StripMethod(rt, text, arguments, false, true);
  if (name == "split") return SplitMethod(rt, text, arguments);
  if (name == "upper") return rt.Made(ChangeCase(text, Case::kUpper));
  if (name == "lower") return rt.Made(ChangeCase(text, Case::kLower));
  if (name == "title") return rt.Made(ChangeCase(text, Case::kTitle));
  if (name == "capitalize") return rt.Made(ChangeCase(text, Case::kCapitalize));
  if (name == "startswith" || name == "endswith") {
    const std::string* part = TextOf(rt, arguments.Find(0, "prefix"), name.c_str());
    if (part == nullptr) return Value();
    const std::string_view whole = text.bytes();
    return Value::Of(name == "startswith" ? whole.starts_with(*part) : whole.ends_with(*part));
  }
  if (name == "replace") {
    const Value* from = arguments.Find(0, "old");
    const Value* to = arguments.Find(1, "new");
    const Value* count = arguments.Find(2, "count");
    if (from == nullptr || to == nullptr) return rt.Fail("replace takes two strings");
    return Replace(rt, text, *from, *to, count);
  }
  return rt.Fail(absl::StrCat("strings have no method '", name, "' here"));
}

Value DictMethod(Runtime& rt, const Dict& dict, const std::string& name,
                 const Arguments& arguments) {
  if (name == "get") {
    const Value* key = arguments.Find(0, "key");
    const Value* fallback = arguments.Find(1, "default");
    const MarkedString* text = key == nullptr ? nullptr : key->string();
    const Value* found = text == nullptr ? nullptr : dict.Find(text->bytes());
    if (found != nullptr) return *found;
    return fallback == nullptr ? Value::OfNone() : *fallback;
  }
  if (name != "items" && name != "keys" && name != "values") {
    return rt.Fail(absl::StrCat("mappings have no method '", name, "' here"));
  }
  List out;
  for (const auto& [key, value] : dict.items) {
    if (!rt.Steps()) return Value();
    if (name == "keys") out.items.push_back(Value::Of(key));
    if (name == "values") out.items.push_back(value);
    if (name == "items") {
      List pair{.items = {Value::Of(key), value}, .tuple = true};
      out.items.push_back(Value::Of(std::move(pair)));
    }
  }
  return rt.Made(Value::Of(std::move(out)));
}

}  // namespace

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string::npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

MarkedString Strip(const MarkedString& text, const std::string* chars, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    const int length = DecodeUtf8(bytes, begin).length;
    if (!Strippable(bytes, begin, length, chars)) break;
    begin += length;
  }
  while (right && end > begin) {
    const size_t last = PreviousChar(bytes, end);
    if (last < begin || !Strippable(bytes, last, static_cast<int>(end - last), chars)) break;
    end = last;
  }
  return text.Cut(begin, end);
}

MarkedString ChangeCase(const MarkedString& text, Case to) {
  std::string bytes = text.bytes();
  bool starts = true;
  for (char& c : bytes) {
    const bool raise = to == Case::kUpper || (starts && to != Case::kLower);
    c = raise ? Upper(c) : Lower(c);
    starts = to == Case::kTitle && !IsAsciiLetter(c) && static_cast<uint8_t>(c) < 0x80;
  }
  return text.WithBytes(std::move(bytes));
}

Value Replace(Runtime& rt, const MarkedString& text, const Value& from, const Value& to,
              const Value* count) {
  if (from.string() == nullptr || to.string() == nullptr) {
    return rt.Fail("replace takes two strings");
  }
  int64_t most = -1;
  if (count != nullptr && !count->is_none() && !count->AsInteger(&most)) {
    return rt.Fail("the count of replace must be an integer");
  }
  const std::string& old = from.string()->bytes();
  if (old.empty()) return rt.Fail("replace takes a first string that is not empty");
  if (!rt.Bytes(text.size())) return Value();
  MarkedString out;
  size_t at = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t found = FindText(text.bytes(), old, at);
    if (found == std::string::npos) break;
    if (!rt.Bytes(to.string()->size() + 16)) return Value();
    out.Append(text.Cut(at, found));
    out.Append(*to.string());
    if (out.size() > kOutputMax) break;  // refused below
    at = found + old.size();
  }
  out.Append(text.Cut(at, text.size()));
  return rt.Made(std::move(out));
}

Value CallMethod(Runtime& rt, const Value& operand, const std::string& name,
                 const Arguments& arguments) {
  if (const MarkedString* text = operand.string()) return StringMethod(rt, *text, name, arguments);
  if (const Dict* dict = operand.dict()) return DictMethod(rt, *dict, name, arguments);
  return rt.Fail(absl::StrCat(operand.kind(), " has no method '", name, "' here"));
}

}  // namespace cuvil::text::jinja
