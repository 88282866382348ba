#include "compiler/ir/attr.h"

#include <algorithm>

namespace cuvil::ir {
namespace {

template <typename T>
const T* Get(const Attrs& attrs, std::string_view name) {
  const AttrValue* value = attrs.Find(name);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

template <typename T>
absl::Span<const T> GetList(const Attrs& attrs, std::string_view name) {
  const std::vector<T>* list = Get<std::vector<T>>(attrs, name);
  return list == nullptr ? absl::Span<const T>() : absl::MakeConstSpan(*list);
}

}  // namespace

std::string_view NameOf(AttrKind kind) {
  constexpr std::string_view kNames[] = {"an integer",      "a float",        "a bool",
                                         "a string",        "a list of ints", "a list of floats",
                                         "an element type", "a list of dims"};
  return kNames[static_cast<int>(kind)];
}

Attrs::Attrs(std::initializer_list<Attr> attrs) {
  for (const Attr& attr : attrs) Set(attr.name, attr.value);
}

void Attrs::Set(std::string_view name, AttrValue value) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Attr& attr, std::string_view n) { return attr.name < n; });
  if (at != entries_.end() && at->name == name) {
    at->value = std::move(value);
  } else {
    entries_.insert(at, Attr{std::string(name), std::move(value)});
  }
}

void Attrs::Erase(std::string_view name) {
  std::erase_if(entries_, [&](const Attr& attr) { return attr.name == name; });
}

const AttrValue* Attrs::Find(std::string_view name) const {
  for (const Attr& attr : entries_) {
    if (attr.name == name) return &attr.value;
  }
  return nullptr;
}

int64_t Attrs::Int(std::string_view name, int64_t fallback) const {
  const int64_t* value = Get<int64_t>(*this, name);
  return value == nullptr ? fallback : *value;
}

double Attrs::Float(std::string_view name, double fallback) const {
  const double* value = Get<double>(*this, name);
  return value == nullptr ? fallback : *value;
}

bool Attrs::Bool(std::string_view name, bool fallback) const {
  const bool* value = Get<bool>(*this, name);
  return value == nullptr ? fallback : *value;
}

std::string_view Attrs::String(std::string_view name, std::string_view fallback) const {
  const std::string* value = Get<std::string>(*this, name);
  return value == nullptr ? fallback : std::string_view(*value);
}

absl::Span<const int64_t> Attrs::Ints(std::string_view name) const {
  return GetList<int64_t>(*this, name);
}

absl::Span<const double> Attrs::Floats(std::string_view name) const {
  return GetList<double>(*this, name);
}

DType Attrs::Type(std::string_view name, DType fallback) const {
  const DType* value = Get<DType>(*this, name);
  return value == nullptr ? fallback : *value;
}

absl::Span<const Dim> Attrs::Dims(std::string_view name) const { return GetList<Dim>(*this, name); }

}  // namespace cuvil::ir
