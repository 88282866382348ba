#include "compiler/ir/interpreter.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/blocks.h"
#include "compiler/ir/interp_ops.h"
#include "compiler/ir/rewrite.h"
#include "compiler/ir/verify.h"

namespace cuvil::ir::interp {
namespace {

OpFunction FunctionOf(OpKind kind) {
  static constexpr OpFunction kFunctions[] = {
#define CUVIL_OP(kind, name, in_min, in_max, outs, rule, effect, interp, doc, ...) &interp,
#include "compiler/ir/ops.def"
#undef CUVIL_OP
  };
  return kFunctions[static_cast<int>(kind)];
}

absl::Status Missing(std::string_view what, std::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(Sv(what), " '", Sv(name), "' is not given"));
}

// Checks a tensor against its declared type.
absl::Status CheckArgument(std::string_view name, const TensorType& type, const TensorView& given,
                           const Bindings& bindings) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> dims, EvaluateAll(type.dims, bindings));
  if (given.dtype != type.dtype || given.dims != dims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", Sv(name), "' is ", Sv(Info(given.dtype).name), "[", absl::StrJoin(given.dims, ", "),
        "], want ", Sv(Info(type.dtype).name), "[", absl::StrJoin(dims, ", "), "]"));
  }
  ASSIGN_OR_RETURN(const int64_t size, ByteSize(type.dtype, dims));
  if (static_cast<int64_t>(given.bytes.size()) != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Sv(name), "' holds ", given.bytes.size(), " bytes, its type ", size));
  }
  return absl::OkStatus();
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, const Arguments& arguments, Bindings bindings)
      : graph_(graph),
        arguments_(arguments),
        bindings_(std::move(bindings)),
        values_(graph.value_count()),
        uses_left_(CountUses(graph)) {}

  absl::StatusOr<Results> Run() {
    RETURN_IF_ERROR(LoadInputs());
    RETURN_IF_ERROR(LoadWeights());
    RETURN_IF_ERROR(LoadConstants());
    for (NodeId id : graph_.body()) RETURN_IF_ERROR(RunNode(graph_.node(id)));
    return TakeOutputs();
  }

 private:
  absl::Status LoadInputs() {
    for (ValueId id : graph_.inputs()) {
      const Value& value = graph_.value(id);
      if (const TensorType* type = AsTensor(value.type)) {
        const auto at = arguments_.inputs.find(value.name);
        if (at == arguments_.inputs.end()) return Missing("input", value.name);
        const TensorView view = at->second.view();
        RETURN_IF_ERROR(CheckArgument(value.name, *type, view, bindings_));
        values_[id.value] = view;
      } else if (IsStep(value.type)) {
        RETURN_IF_ERROR(LoadStep(id));
      } else {
        RETURN_IF_ERROR(LoadState(id, *AsKv(value.type)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status LoadStep(ValueId id) {
    if (!arguments_.step) return Missing("step", graph_.value(id).name);
    const StepInput& step = *arguments_.step;
    if (step.sequence.size() != step.position.size()) {
      return absl::InvalidArgumentError("a step needs one sequence and one position per row");
    }
    for (size_t row = 0; row < step.position.size(); ++row) {
      if (step.position[row] < 0 || step.sequence[row] < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", row, " of the step has a negative sequence or position"));
      }
    }
    values_[id.value] = step;
    return absl::OkStatus();
  }

  absl::Status LoadState(ValueId id, const KvType& type) {
    const auto at = arguments_.states.find(graph_.value(id).name);
    KvState state = at == arguments_.states.end() ? KvState{} : at->second;
    const size_t size = static_cast<size_t>(type.heads * type.dim);
    for (const auto& [sequence, rows] : state.sequences) {
      for (const auto& [position, row] : rows) {
        if (row.k.size() != size || row.v.size() != size) {
          return absl::InvalidArgumentError(absl::StrCat(
              "state '", graph_.value(id).name, "' has a row that is not ", size, " numbers"));
        }
      }
    }
    values_[id.value] = std::move(state);
    return absl::OkStatus();
  }

  absl::Status LoadWeights() {
    for (ValueId id : graph_.weights()) {
      const Value& value = graph_.value(id);
      const auto at = arguments_.weights.find(value.name);
      if (at == arguments_.weights.end()) return Missing("weight", value.name);
      RETURN_IF_ERROR(CheckArgument(value.name, *AsTensor(value.type), at->second, bindings_));
      values_[id.value] = at->second;
    }
    return absl::OkStatus();
  }

  absl::Status LoadConstants() {
    for (const Constant& constant : graph_.constants()) {
      const TensorType& type = graph_.tensor_type(constant.value);
      ASSIGN_OR_RETURN(std::vector<int64_t> dims, EvaluateAll(type.dims, bindings_));
      values_[constant.value.value] = TensorView{type.dtype, std::move(dims), constant.bytes};
    }
    return absl::OkStatus();
  }

  absl::Status RunNode(const Node& node) {
    OpCall call{graph_, node, bindings_, {}, {}, std::vector<HostValue>(node.outputs.size())};
    for (ValueId input : node.inputs) {
      call.inputs.push_back(&values_[input.value]);
      call.last_use.push_back(uses_left_[input.value] == 1);
    }
    if (absl::Status status = FunctionOf(node.op)(call); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(Sv(NameOf(node.op)), ": ", status.message()));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      values_[node.outputs[i].value] = std::move(call.outputs[i]);
    }
    // Keeps memory near the live set rather than the whole run.
    for (ValueId input : node.inputs) {
      if (--uses_left_[input.value] == 0) values_[input.value] = std::monostate();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Results> TakeOutputs() {
    Results results;
    for (const Output& output : graph_.outputs()) {
      const HostValue& value = values_[output.value.value];
      if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
        results.tensors[output.name] = *tensor;
      } else if (const TensorView* view = std::get_if<TensorView>(&value)) {
        results.tensors[output.name] =
            Tensor{view->dtype, view->dims, {view->bytes.begin(), view->bytes.end()}};
      } else if (const KvState* state = std::get_if<KvState>(&value)) {
        results.states[output.name] = *state;
      } else {
        CUVIL_CHECK(false, "an output was never computed");
      }
    }
    return results;
  }

  const Graph& graph_;
  const Arguments& arguments_;
  const Bindings bindings_;
  std::vector<HostValue> values_;  // by value id
  std::vector<int32_t> uses_left_;
};

}  // namespace

absl::StatusOr<Bindings> BindSymbols(const Graph& graph, const Arguments& arguments) {
  const absl::Span<const Symbol> symbols = graph.symbols();
  std::vector<std::optional<int64_t>> found(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) {
    const auto at = arguments.symbols.find(symbols[i].name);
    if (at != arguments.symbols.end()) found[i] = at->second;
  }
  for (ValueId id : graph.inputs()) {
    const TensorType* type = AsTensor(graph.type(id));
    const auto at = arguments.inputs.find(graph.value(id).name);
    if (type == nullptr || at == arguments.inputs.end()) continue;
    if (at->second.dims.size() != type->dims.size()) continue;  // CheckArgument reports it
    for (size_t i = 0; i < type->dims.size(); ++i) {
      const std::optional<SymbolId> symbol = type->dims[i].symbol();
      if (symbol && !found[symbol->value]) found[symbol->value] = at->second.dims[i];
    }
  }
  Bindings bindings;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (!found[i]) return Missing("symbol", symbols[i].name);
    if (*found[i] < symbols[i].min || *found[i] > symbols[i].max) {
      return absl::InvalidArgumentError(absl::StrCat("symbol ", symbols[i].name, " = ", *found[i],
                                                     " is outside ", symbols[i].min, "..",
                                                     symbols[i].max));
    }
    bindings.push_back(*found[i]);
  }
  return bindings;
}

absl::StatusOr<Results> Evaluate(const Graph& graph, const Arguments& arguments) {
  RETURN_IF_ERROR(Verify(graph));
  ASSIGN_OR_RETURN(Bindings bindings, BindSymbols(graph, arguments));
  return Evaluator(graph, arguments, std::move(bindings)).Run();
}

TensorView OpCall::In(size_t index) const {
  if (const Tensor* tensor = std::get_if<Tensor>(inputs[index])) return tensor->view();
  return std::get<TensorView>(*inputs[index]);
}

absl::StatusOr<Tensor> OpCall::NewOutput(size_t index) const {
  const TensorType& type = graph.tensor_type(node.outputs[index]);
  ASSIGN_OR_RETURN(std::vector<int64_t> dims, EvaluateAll(type.dims, bindings));
  return Tensor::Zeros(type.dtype, std::move(dims));
}

std::vector<int64_t> Coordinates(absl::Span<const int64_t> dims, int64_t flat) {
  std::vector<int64_t> coordinates(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    coordinates[i] = flat % dims[i];
    flat /= dims[i];
  }
  return coordinates;
}

int64_t FlatIndex(absl::Span<const int64_t> dims, absl::Span<const int64_t> coordinates) {
  int64_t flat = 0;
  for (size_t i = 0; i < dims.size(); ++i) flat = flat * dims[i] + coordinates[i];
  return flat;
}

int64_t BroadcastIndex(absl::Span<const int64_t> to, absl::Span<const int64_t> from, int64_t flat) {
  if (to == from) return flat;
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t i = 0; i < from.size(); ++i) {  // from the last dim
    const int64_t extent = to[to.size() - 1 - i];
    const int64_t own = from[from.size() - 1 - i];
    if (own != 1) index += flat % extent * stride;
    flat /= extent;
    stride *= own;
  }
  return index;
}

std::vector<double> ToReals(const TensorView& tensor) {
  const int64_t count = tensor.count();
  std::vector<double> values(count);
  if (IsBlock(tensor.dtype)) {
    // Rows are whole blocks, so the tensor decodes as one long row.
    std::vector<float> floats(count);
    DecodeRow(tensor.dtype, tensor.bytes.data(), count, floats.data());
    values.assign(floats.begin(), floats.end());
    return values;
  }
  WithComputeType(tensor.dtype, [&](auto tag) {
    using C = decltype(tag);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<double>(LoadElement<C>(tensor.dtype, tensor.bytes.data(), i));
    }
  });
  return values;
}

void StoreReal(Tensor& tensor, int64_t index, double value) {
  if (tensor.dtype == DType::kF64) {
    StoreElement<double>(tensor.dtype, tensor.bytes.data(), index, value);
  } else {
    StoreElement<float>(tensor.dtype, tensor.bytes.data(), index, static_cast<float>(value));
  }
}

}  // namespace cuvil::ir::interp
