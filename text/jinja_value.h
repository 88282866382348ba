// The values of chat templates. Immutable and shared, except namespaces, which are never stored
// inside another value: so values form no cycles, and their nesting has a limit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/json.h"
#include "text/marked_string.h"

namespace cuvil::text::jinja {

struct Stmt;
class Value;

// Lists and mappings nest no deeper: enough for JSON (base/json.h), shallow enough for any stack.
inline constexpr int kValueDepthMax = 64;

// What a value weighs: roughly the bytes that comparing or printing it reads. Values share parts,
// so the weight may exceed the memory; whoever makes values must refuse heavy ones, and saturates
// here.
inline constexpr size_t kWeightMax = size_t{1} << 40;

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
  size_t weight = 8;
};

struct Dict {
  std::vector<std::pair<MarkedString, Value>> items;
  absl::flat_hash_map<std::string, size_t> index;  // of large ones only
  int depth = 1;
  size_t weight = 8;

  // Where the key is; items.size() when it is nowhere.
  size_t Position(std::string_view key) const;
  const Value* Find(std::string_view key) const;
  void Set(const MarkedString& key, Value value);
};

struct Undefined {};
struct None {};
struct Builtin {  // a global function
  std::string name;
};
struct Macro {
  const Stmt* stmt = nullptr;  // owned by the template
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double,
                            std::shared_ptr<const MarkedString>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Dict>, Builtin, Macro>;

  Value() = default;
  explicit Value(Data data) : data_(std::move(data)) {}
  static Value OfNone() { return Value(Data(None{})); }
  static Value Of(bool value) { return Value(Data(value)); }
  static Value Of(int64_t value) { return Value(Data(value)); }
  static Value Of(double value) { return Value(Data(value)); }
  static Value Of(MarkedString value);
  static Value Of(std::string_view value, bool trusted) { return Of(MarkedString(value, trusted)); }
  // Compute depth and weight; the caller checks them.
  static Value Of(List value);
  static Value Of(Dict value);
  static Value OfNamespace(Dict value);
  // `json` nests no deeper than kValueDepthMax; its strings get the mark.
  static Value FromJson(const Json& json, bool trusted);

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* floating() const { return std::get_if<double>(&data_); }
  const MarkedString* string() const;
  const List* list() const;
  const Dict* dict() const;
  Dict* name_space() const;
  const Builtin* builtin() const { return std::get_if<Builtin>(&data_); }
  const Macro* macro() const { return std::get_if<Macro>(&data_); }

  bool is_number() const { return integer() != nullptr || floating() != nullptr; }
  // An integer, or a boolean as 0 and 1.
  bool AsInteger(int64_t* out) const;
  // Any number, or a boolean.
  bool AsDouble(double* out) const;
  bool Truthy() const;
  int depth() const;
  // What it is, for messages: "a string", "a list", ...
  const char* kind() const;
  size_t weight() const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }

  Data data_;
};

bool Equal(const Value& a, const Value& b);

// As Python's str() prints it; undefined prints as nothing.
MarkedString Print(const Value& value);

// As Python's json.dumps(ensure_ascii=False); indent < 0 for one line. False for a value that JSON
// cannot hold.
bool PrintJson(const Value& value, int indent, MarkedString* out);

}  // namespace cuvil::text::jinja
