#include "compiler/ir/ops.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/ir/shape_rules.h"

namespace cuvil::ir {
namespace {

AttrSpec Required(std::string_view name, AttrKind kind) { return {name, kind, true}; }
AttrSpec Optional(std::string_view name, AttrKind kind) { return {name, kind, false}; }

const std::array<OpInfo, kOpCount>& Table() {
  constexpr Effect kPure = Effect::kPure;
  constexpr Effect kReadsState = Effect::kReadsState;
  constexpr Effect kWritesState = Effect::kWritesState;
  // Never destroyed, so that exit order does not matter.
  static const auto& table = *new std::array<OpInfo, kOpCount>{{
#define CUVIL_OP(kind, name, in_min, in_max, outs, rule, effect, interp, doc, ...) \
  OpInfo{OpKind::kind, name, in_min, in_max, outs, &shape_rules::rule, effect, doc, {__VA_ARGS__}},
#include "compiler/ir/ops.def"
#undef CUVIL_OP
  }};
  return table;
}

absl::Status CheckAttrs(const OpInfo& info, const Attrs& attrs) {
  for (const Attr& attr : attrs.entries()) {
    const AttrSpec* spec = nullptr;
    for (const AttrSpec& s : info.attrs) {
      if (s.name == attr.name) spec = &s;
    }
    if (spec == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("has no attribute '", attr.name, "'"));
    }
    if (spec->kind != KindOf(attr.value)) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", attr.name, "' is ",
                                                     Sv(NameOf(KindOf(attr.value))), ", want ",
                                                     Sv(NameOf(spec->kind))));
    }
  }
  for (const AttrSpec& spec : info.attrs) {
    if (spec.required && !attrs.Has(spec.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("needs attribute '", Sv(spec.name), "' (", Sv(NameOf(spec.kind)), ")"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Type>> Infer(const OpInfo& info, const ShapeQuery& query) {
  const int inputs = static_cast<int>(query.inputs.size());
  if (inputs < info.inputs_min || inputs > info.inputs_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes ", info.inputs_min, "..", info.inputs_max, " inputs, not ", inputs));
  }
  RETURN_IF_ERROR(CheckAttrs(info, query.attrs));
  ASSIGN_OR_RETURN(std::vector<Type> types, info.shape_rule(query));
  for (const Type& type : types) RETURN_IF_ERROR(CheckType(type, query.symbols));
  CUVIL_CHECK(static_cast<int>(types.size()) == info.outputs, info.name);
  return types;
}

}  // namespace

const OpInfo& OpInfoOf(OpKind kind) { return Table()[static_cast<int>(kind)]; }

std::optional<OpKind> FindOp(std::string_view name) {
  if (name == "where") return OpKind::kSelect;
  for (const OpInfo& info : Table()) {
    if (info.name == name) return info.kind;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<Type>> InferTypes(const ShapeQuery& query) {
  const OpInfo& info = OpInfoOf(query.op);
  absl::StatusOr<std::vector<Type>> types = Infer(info, query);
  if (types.ok()) return types;
  return absl::Status(types.status().code(),
                      absl::StrCat(Sv(info.name), ": ", types.status().message()));
}

}  // namespace cuvil::ir
