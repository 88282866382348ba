// Node attributes: a small map from name to a typed value, kept sorted by name so that text and
// keys are deterministic. Plain values, any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "compiler/ir/type.h"

namespace cuvil::ir {

// Order matches the alternatives of AttrValue.
enum class AttrKind : uint8_t { kInt, kFloat, kBool, kString, kInts, kFloats, kDType, kDims };

using AttrValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<double>, DType, std::vector<Dim>>;

inline AttrKind KindOf(const AttrValue& value) { return static_cast<AttrKind>(value.index()); }
std::string_view NameOf(AttrKind kind);

struct Attr {
  std::string name;
  AttrValue value;
  friend bool operator==(const Attr&, const Attr&) = default;
};

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<Attr> attrs);  // NOLINT: implicit, {{"axis", 1}}

  // Adds or replaces.
  void Set(std::string_view name, AttrValue value);
  void Erase(std::string_view name);
  const AttrValue* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The value, or the fallback when the attribute is absent or of another kind (Verify refuses
  // graphs with wrong kinds or without required attributes).
  int64_t Int(std::string_view name, int64_t fallback = 0) const;
  double Float(std::string_view name, double fallback = 0) const;
  bool Bool(std::string_view name, bool fallback = false) const;
  std::string_view String(std::string_view name, std::string_view fallback = "") const;
  absl::Span<const int64_t> Ints(std::string_view name) const;
  absl::Span<const double> Floats(std::string_view name) const;
  DType Type(std::string_view name, DType fallback = DType::kF32) const;
  absl::Span<const Dim> Dims(std::string_view name) const;

  absl::Span<const Attr> entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::vector<Attr> entries_;  // sorted by name, names unique
};

}  // namespace cuvil::ir
