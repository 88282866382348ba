// The operation table of ops.def as data: kind, name, arity, attributes, effect and shape rule.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/ir/attr.h"
#include "compiler/ir/type.h"

namespace cuvil::ir {

enum class OpKind : uint8_t {
#define CUVIL_OP(kind, ...) kind,
#include "compiler/ir/ops.def"
#undef CUVIL_OP
};

inline constexpr int kOpCount = 0
#define CUVIL_OP(...) +1
#include "compiler/ir/ops.def"
#undef CUVIL_OP
    ;

enum class Effect : uint8_t { kPure, kReadsState, kWritesState };

struct AttrSpec {
  std::string_view name;
  AttrKind kind;
  bool required;
};

// What a shape rule sees. Arity and attribute kinds have been checked already.
struct ShapeQuery {
  OpKind op;
  absl::Span<const Type* const> inputs;
  const Attrs& attrs;
  absl::Span<const Symbol> symbols;
};

// Output types, or InvalidArgument in one sentence (without the op's name; InferTypes adds it).
using ShapeRule = absl::StatusOr<std::vector<Type>> (*)(const ShapeQuery&);

struct OpInfo {
  OpKind kind;
  std::string_view name;
  int inputs_min;
  int inputs_max;
  int outputs;
  ShapeRule shape_rule;
  Effect effect;
  std::string_view doc;
  std::vector<AttrSpec> attrs;
};

const OpInfo& OpInfoOf(OpKind kind);
inline std::string_view NameOf(OpKind kind) { return OpInfoOf(kind).name; }
// By text name; `where` is an alias of `select`.
std::optional<OpKind> FindOp(std::string_view name);

// Checks arity and attributes, then runs the shape rule and checks the resulting types.
absl::StatusOr<std::vector<Type>> InferTypes(const ShapeQuery& query);

}  // namespace cuvil::ir
