#include "text/jinja_runtime.h"

#include <string.h>

#include <algorithm>

#include "text/jinja_lexer.h"
#include "text/utf8.h"

namespace cuvil::text::jinja {
namespace {

// Where each character begins, and the end.
std::vector<size_t> Boundaries(const std::string& text) {
  std::vector<size_t> at;
  for (size_t i = 0; i < text.size(); i += DecodeUtf8(text, i).length) at.push_back(i);
  at.push_back(text.size());
  return at;
}

// The indices that Python's slice picks from `count` elements.
std::vector<int64_t> SliceIndices(Runtime& rt, int64_t count, const Value& start, const Value& stop,
                                  const Value& step) {
  int64_t by = 1;
  if (!step.is_none() && (!step.AsInteger(&by) || by == 0)) {
    rt.Fail("a slice's step must be an integer other than 0");
    return {};
  }
  const auto bound = [&](const Value& value, int64_t fallback) {
    int64_t at = 0;
    if (value.is_none()) return fallback;
    if (!value.AsInteger(&at)) {
      rt.Fail(absl::StrCat("a slice's bound must be an integer, not ", value.kind()));
      return fallback;
    }
    if (at < 0) at = at < -count ? -1 : at + count;
    if (by > 0) return std::clamp<int64_t>(at, 0, count);
    return std::clamp<int64_t>(at, -1, count - 1);
  };
  const int64_t first = bound(start, by > 0 ? 0 : count - 1);
  const int64_t last = bound(stop, by > 0 ? count : -1);
  std::vector<int64_t> indices;
  // Steps past either end stop the loop; comparing the distance keeps the sum from overflowing.
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    indices.push_back(i);
    if (by > 0 ? by >= last - i : by <= last - i) break;
    i += by;
  }
  return indices;
}

}  // namespace

Value Runtime::Fail(const std::string& what) {
  if (!failed()) status_ = TemplateError(line_, what);
  return Value();
}

bool Runtime::Steps(int64_t count) {
  steps_ -= std::min(steps_, count);
  if (steps_ == 0) Fail(absl::StrCat("rendering took more than ", kStepsMax, " steps"));
  return !failed();
}

bool Runtime::Bytes(size_t count) {
  bytes_ -= std::min<int64_t>(bytes_, static_cast<int64_t>(std::min<size_t>(count, kBytesMax)));
  if (bytes_ == 0) Fail("rendering moved too much text");
  return !failed();
}

Value Runtime::Made(Value value) {
  if (value.depth() > kValueDepthMax) return Fail("a value is nested too deep");
  if (value.weight() > kOutputMax + 8) {
    return Fail(absl::StrCat("a value is larger than ", kOutputMax, " bytes"));
  }
  const size_t elements = value.list() != nullptr   ? value.list()->items.size()
                          : value.dict() != nullptr ? value.dict()->items.size()
                                                    : 0;
  if (!Steps(static_cast<int64_t>(elements)) || !Bytes(value.weight())) return Value();
  return value;
}

const Value* Arguments::Find(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

int64_t Length(Runtime& rt, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const List* list = value.list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->items.size());
  if (const MarkedString* text = value.string()) {
    rt.Bytes(text->size());
    return static_cast<int64_t>(Boundaries(text->bytes()).size()) - 1;
  }
  rt.Fail(absl::StrCat(value.kind(), " has no length"));
  return -1;
}

std::vector<Value> Elements(Runtime& rt, const Value& value) {
  std::vector<Value> out;
  if (value.is_undefined()) return out;
  if (const List* list = value.list()) {
    rt.Steps(static_cast<int64_t>(list->items.size()));
    return list->items;
  }
  if (const Dict* dict = value.dict()) {
    rt.Steps(static_cast<int64_t>(dict->items.size()));
    for (const auto& [key, item] : dict->items) out.push_back(Value::Of(key));
    return out;
  }
  if (const MarkedString* text = value.string()) {
    const std::vector<size_t> at = Boundaries(text->bytes());
    if (!rt.Steps(static_cast<int64_t>(at.size())) || !rt.Bytes(text->size())) return out;
    for (size_t i = 0; i + 1 < at.size(); ++i)
      out.push_back(Value::Of(text->Cut(at[i], at[i + 1])));
    return out;
  }
  rt.Fail(absl::StrCat(value.kind(), " cannot be iterated"));
  return out;
}

Value Slice(Runtime& rt, const Value& operand, const Value& start, const Value& stop,
            const Value& step) {
  if (const List* list = operand.list()) {
    List out;
    out.tuple = list->tuple;
    rt.Steps(static_cast<int64_t>(list->items.size()));
    const auto count = static_cast<int64_t>(list->items.size());
    for (const int64_t i : SliceIndices(rt, count, start, stop, step)) {
      out.items.push_back(list->items[i]);
    }
    return rt.Made(Value::Of(std::move(out)));
  }
  if (const MarkedString* text = operand.string()) {
    if (!rt.Bytes(text->size() * sizeof(size_t))) return Value();
    const std::vector<size_t> at = Boundaries(text->bytes());
    const auto count = static_cast<int64_t>(at.size()) - 1;
    MarkedString out;
    for (const int64_t i : SliceIndices(rt, count, start, stop, step)) {
      out.Append(text->Cut(at[i], at[i + 1]));
    }
    return rt.Made(std::move(out));
  }
  return rt.Fail(absl::StrCat(operand.kind(), " cannot be sliced"));
}

Value GetItem(Runtime& rt, const Value& operand, const Value& key) {
  if (operand.is_undefined()) {
    return rt.Fail("something is looked up in a value that is undefined");
  }
  const Dict* dict = operand.dict() != nullptr ? operand.dict() : operand.name_space();
  if (dict != nullptr) {
    const Value* found = key.string() != nullptr ? dict->Find(key.string()->bytes()) : nullptr;
    return found == nullptr ? Value() : *found;
  }
  int64_t index = 0;
  if (!key.AsInteger(&index)) return Value();
  if (const List* list = operand.list()) {
    const auto count = static_cast<int64_t>(list->items.size());
    if (index < 0) index += count;
    return index < 0 || index >= count ? Value() : list->items[index];
  }
  if (operand.string() != nullptr) {
    const int64_t count = Length(rt, operand);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return Value();
    return Slice(rt, operand, Value::Of(index), Value::Of(index + 1), Value::OfNone());
  }
  return Value();
}

bool Contains(Runtime& rt, const Value& item, const Value& container) {
  rt.Bytes(container.weight());
  if (const MarkedString* text = container.string()) {
    const MarkedString* part = item.string();
    if (part == nullptr) {
      rt.Fail(absl::StrCat("'in' a string takes a string, not ", item.kind()));
      return false;
    }
    // memmem is linear, whatever the strings are.
    return part->empty() || memmem(text->bytes().data(), text->size(), part->bytes().data(),
                                   part->size()) != nullptr;
  }
  if (const List* list = container.list()) {
    rt.Steps(static_cast<int64_t>(list->items.size()));
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& element) { return Equal(element, item); });
  }
  const Dict* dict = container.dict() != nullptr ? container.dict() : container.name_space();
  if (dict != nullptr) {
    return item.string() != nullptr && dict->Find(item.string()->bytes()) != nullptr;
  }
  if (!container.is_undefined()) rt.Fail(absl::StrCat("'in' does not take ", container.kind()));
  return false;
}

bool Less(Runtime& rt, const Value& a, const Value& b) {
  rt.Bytes(a.weight() + b.weight());
  int64_t whole_a = 0, whole_b = 0;
  if (a.AsInteger(&whole_a) && b.AsInteger(&whole_b)) return whole_a < whole_b;
  double real_a = 0, real_b = 0;
  if (a.AsDouble(&real_a) && b.AsDouble(&real_b)) return real_a < real_b;
  if (a.string() != nullptr && b.string() != nullptr) {
    return a.string()->bytes() < b.string()->bytes();
  }
  rt.Fail(absl::StrCat(a.kind(), " and ", b.kind(), " have no order"));
  return false;
}

}  // namespace cuvil::text::jinja
