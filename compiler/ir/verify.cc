#include "compiler/ir/verify.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cuvil::ir {
namespace {

constexpr size_t kNameMax = 1024;  // longer than any tensor name in use
constexpr size_t kPreferMax = 64;  // each preferred value may cost a compiled plan
constexpr size_t kSymbolsMax = 4096;

absl::Status Bad(std::string_view sentence) {
  return absl::InvalidArgumentError(absl::StrCat("graph is malformed: ", Sv(sentence)));
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        defined_(graph.value_count()),
        overwritten_(graph.value_count()),
        placed_(graph.node_count()) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CheckSymbols());
    RETURN_IF_ERROR(CheckNamedValues());
    for (NodeId id : graph_.body()) {
      if (!graph_.Contains(id)) return Bad(absl::StrCat("body names node ", id.value));
      const Node& node = graph_.node(id);
      if (absl::Status status = CheckNode(id, node); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat(status.message(), Where(node)));
      }
    }
    return CheckOutputs();
  }

 private:
  std::string Where(const Node& node) const {
    if (!graph_.Contains(node.loc) || graph_.sources(node.loc).empty()) return "";
    return absl::StrCat(" (at ", absl::StrJoin(graph_.sources(node.loc), ", "), ")");
  }

  absl::Status CheckSymbols() const {
    if (!IsIdentifier(graph_.name())) {
      return Bad(absl::StrCat("name '", graph_.name(), "' is not an identifier"));
    }
    if (graph_.symbols().size() > kSymbolsMax) {
      return Bad(absl::StrCat("more than ", kSymbolsMax, " symbols"));
    }
    std::set<std::string_view> names;
    for (const Symbol& symbol : graph_.symbols()) {
      if (!IsIdentifier(symbol.name) || !names.insert(symbol.name).second) {
        return Bad(absl::StrCat("symbol '", symbol.name, "' is repeated or not an identifier"));
      }
      if (symbol.min < 0 || symbol.min > symbol.max || symbol.max > kExtentMax) {
        return Bad(
            absl::StrCat("symbol ", symbol.name, " has range ", symbol.min, "..", symbol.max));
      }
      if (symbol.prefer.size() > kPreferMax) {
        return Bad(absl::StrCat("symbol ", symbol.name, " prefers over ", kPreferMax, " values"));
      }
      for (int64_t value : symbol.prefer) {
        if (value < symbol.min || value > symbol.max) {
          return Bad(
              absl::StrCat("symbol ", symbol.name, " prefers ", value, ", outside its range"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNamed(ValueId id, Origin origin, size_t index) {
    if (!graph_.Contains(id)) return Bad(absl::StrCat("named value ", id.value, " is no value"));
    const Value& value = graph_.value(id);
    if (value.origin != origin || value.index != static_cast<int64_t>(index)) {
      return Bad(absl::StrCat("value '", value.name, "' is listed in the wrong place"));
    }
    if (value.name.empty() || value.name.size() > kNameMax || !names_.insert(value.name).second) {
      return Bad(absl::StrCat("value name '", value.name.substr(0, kNameMax),
                              "' is empty, too long or used twice"));
    }
    if (absl::Status status = CheckType(value.type, graph_.symbols()); !status.ok()) {
      return Bad(absl::StrCat("'", value.name, "': ", status.message()));
    }
    defined_[id.value] = true;
    return absl::OkStatus();
  }

  absl::Status CheckNamedValues() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      RETURN_IF_ERROR(CheckNamed(graph_.inputs()[i], Origin::kInput, i));
    }
    for (size_t i = 0; i < graph_.weights().size(); ++i) {
      const ValueId id = graph_.weights()[i];
      RETURN_IF_ERROR(CheckNamed(id, Origin::kWeight, i));
      RETURN_IF_ERROR(CheckConcrete(id));
    }
    for (size_t i = 0; i < graph_.constants().size(); ++i) {
      const Constant& constant = graph_.constants()[i];
      RETURN_IF_ERROR(CheckNamed(constant.value, Origin::kConstant, i));
      RETURN_IF_ERROR(CheckConcrete(constant.value));
      RETURN_IF_ERROR(CheckPayload(constant));
    }
    return absl::OkStatus();
  }

  // Weights and constants exist before any request, so their extents are numbers.
  absl::Status CheckConcrete(ValueId id) const {
    const Value& value = graph_.value(id);
    const TensorType* type = AsTensor(value.type);
    if (type == nullptr) return Bad(absl::StrCat("'", value.name, "' must be a tensor"));
    for (const Dim& dim : type->dims) {
      if (!dim.constant()) return Bad(absl::StrCat("'", value.name, "' has a symbolic extent"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPayload(const Constant& constant) const {
    const Value& value = graph_.value(constant.value);
    const TensorType& type = *AsTensor(value.type);
    if (IsBlock(type.dtype)) return Bad(absl::StrCat("constant '", value.name, "' is block-typed"));
    ASSIGN_OR_RETURN(const std::vector<int64_t> dims, EvaluateAll(type.dims, {}));
    ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type.dtype, dims));
    if (bytes > kConstantBytesMax || bytes != static_cast<int64_t>(constant.bytes.size())) {
      return Bad(absl::StrCat("constant '", value.name, "' holds ", constant.bytes.size(),
                              " bytes, its type ", bytes, ", the limit is ", kConstantBytesMax));
    }
    if (type.dtype == DType::kBool) {
      for (uint8_t byte : constant.bytes) {
        if (byte > 1) return Bad(absl::StrCat("constant '", value.name, "' has a bool not 0 or 1"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNode(NodeId id, const Node& node) {
    if (static_cast<int>(node.op) >= kOpCount) {
      return Bad(absl::StrCat("node ", id.value, " has op number ", static_cast<int>(node.op)));
    }
    const std::string_view op = NameOf(node.op);
    if (placed_[id.value]) return Bad(absl::StrCat(Sv(op), " is in the body twice"));
    placed_[id.value] = true;
    if (!graph_.Contains(node.loc)) return Bad(absl::StrCat(Sv(op), " has an unknown location"));
    if (!node.regions.empty()) return Bad(absl::StrCat(Sv(op), " has regions; no op has yet"));
    RETURN_IF_ERROR(CheckInputs(op, node));
    RETURN_IF_ERROR(CheckInferred(op, node));
    return DefineOutputs(id, op, node);
  }

  absl::Status CheckInputs(std::string_view op, const Node& node) {
    for (ValueId input : node.inputs) {
      if (!graph_.Contains(input) || !defined_[input.value]) {
        return Bad(absl::StrCat(Sv(op), " uses value ", input.value, ", not defined before it"));
      }
      if (overwritten_[input.value]) {
        return Bad(absl::StrCat(Sv(op), " uses state ", input.value, " after it was overwritten"));
      }
    }
    if (OpInfoOf(node.op).effect == Effect::kWritesState) {
      for (ValueId input : node.inputs) {
        if (AsKv(graph_.type(input)) == nullptr) continue;
        if (overwritten_[input.value]) {
          return Bad(absl::StrCat(Sv(op), " overwrites state ", input.value, " twice"));
        }
        overwritten_[input.value] = true;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckInferred(std::string_view op, const Node& node) {
    std::vector<const Type*> inputs;
    for (ValueId input : node.inputs) inputs.push_back(&graph_.type(input));
    absl::StatusOr<std::vector<Type>> types =
        InferTypes({node.op, inputs, node.attrs, graph_.symbols()});
    if (!types.ok()) return Bad(Sv(types.status().message()));
    if (types->size() != node.outputs.size()) {
      return Bad(
          absl::StrCat(Sv(op), " has ", node.outputs.size(), " outputs, not ", types->size()));
    }
    for (size_t i = 0; i < types->size(); ++i) {
      if (!graph_.Contains(node.outputs[i])) {
        return Bad(
            absl::StrCat(Sv(op), " defines value ", node.outputs[i].value, ", which is none"));
      }
      const Type& declared = graph_.type(node.outputs[i]);
      if (declared != (*types)[i]) {
        return Bad(absl::StrCat(Sv(op), " has type ", ToString(declared, graph_.symbols()),
                                ", inferred ", ToString((*types)[i], graph_.symbols())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status DefineOutputs(NodeId id, std::string_view op, const Node& node) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& value = graph_.value(node.outputs[i]);
      if (value.origin != Origin::kNode || value.node != id ||
          value.index != static_cast<int64_t>(i) || defined_[node.outputs[i].value]) {
        return Bad(absl::StrCat(Sv(op), " and its output ", i, " disagree on who defines it"));
      }
      if (value.name.size() > kNameMax)
        return Bad(absl::StrCat(Sv(op), " has too long a name hint"));
      defined_[node.outputs[i].value] = true;
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() const {
    std::set<std::string_view> names;
    std::vector<bool> returned(graph_.value_count());
    for (const Output& output : graph_.outputs()) {
      if (output.name.empty() || output.name.size() > kNameMax ||
          !names.insert(output.name).second) {
        return Bad(absl::StrCat("output name '", output.name.substr(0, kNameMax),
                                "' is empty, too long or used twice"));
      }
      if (!graph_.Contains(output.value) || !defined_[output.value.value]) {
        return Bad(absl::StrCat("output '", output.name, "' is not defined"));
      }
      if (IsStep(graph_.type(output.value))) {
        return Bad(absl::StrCat("output '", output.name, "' is the step header"));
      }
      if (AsKv(graph_.type(output.value)) != nullptr) {
        if (overwritten_[output.value.value] || returned[output.value.value]) {
          return Bad(absl::StrCat("output '", output.name,
                                  "' is state overwritten by a later node or returned twice"));
        }
      }
      returned[output.value.value] = true;
    }
    return CheckWrittenStateReturned(returned);
  }

  absl::Status CheckWrittenStateReturned(const std::vector<bool>& returned) const {
    for (NodeId id : graph_.body()) {
      const Node& node = graph_.node(id);
      if (OpInfoOf(node.op).effect != Effect::kWritesState) continue;
      for (ValueId output : node.outputs) {
        if (AsKv(graph_.type(output)) == nullptr) continue;
        if (!overwritten_[output.value] && !returned[output.value]) {
          return Bad(absl::StrCat(Sv(NameOf(node.op)), " writes state that is not an output",
                                  Where(node)));
        }
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  std::vector<bool> defined_;
  std::vector<bool> overwritten_;
  std::vector<bool> placed_;
  std::set<std::string_view> names_;
};

}  // namespace

absl::Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

bool IsIdentifier(std::string_view name) {
  constexpr size_t kIdentifierMax = 256;
  if (name.empty() || name.size() > kIdentifierMax) return false;
  if (!absl::ascii_isalpha(static_cast<unsigned char>(name[0])) && name[0] != '_') return false;
  for (char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  }
  return true;
}

}  // namespace cuvil::ir
