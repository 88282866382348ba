#include "compiler/lower/fuse.h"

#include "compiler/lower/scalar_code.h"

namespace cuvil::lower {
namespace {

using ir::Node;
using ir::OpKind;
using ir::ValueId;

bool IsMovement(OpKind op) {
  return op == OpKind::kTranspose || op == OpKind::kBroadcastTo || op == OpKind::kSlice;
}

bool CanInline(OpKind op) {
  return IsElementwise(op) || IsMovement(op) || op == OpKind::kIota || op == OpKind::kGather;
}

// What a reader accepts in place of a stored operand.
enum class Accepts { kMemory, kMovement, kExpression };

Accepts Operand(const Node& node, size_t input) {
  switch (node.op) {
    case OpKind::kReshape:
      return Accepts::kMemory;
    case OpKind::kGather:
      return input == 0 ? Accepts::kMemory : Accepts::kExpression;
    case OpKind::kMatMul:
    case OpKind::kSoftmax:
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kRope:
    case OpKind::kQuantiseDynamic:
      return Accepts::kMovement;
    default:
      return Accepts::kExpression;
  }
}

class Planner {
 public:
  explicit Planner(const ir::Graph& graph) : g_(graph) {
    const size_t n = static_cast<size_t>(g_.value_count());
    plan_ = {std::vector<bool>(n), std::vector<bool>(n), std::vector<std::string>(n)};
    cost_.resize(n, 0);
    ops_.resize(n, 0);
    moves_.resize(n, true);  // stored data counts as movement of itself
    stored_.resize(n, false);
    readers_.resize(n);
  }

  Fusion Run() {
    FindNeeded();
    for (const ir::NodeId id : g_.body()) {
      const Node& node = g_.node(id);
      if (plan_.needed[node.outputs[0].value] && CanInline(node.op)) Decide(node);
    }
    return std::move(plan_);
  }

 private:
  void FindNeeded() {
    for (const ir::Output& output : g_.outputs()) {
      plan_.needed[output.value.value] = true;
      stored_[RootOf(g_, output.value).value] = true;
    }
    for (size_t i = g_.body().size(); i-- > 0;) {
      const Node& node = g_.node(g_.body()[i]);
      bool needed = false;
      for (const ValueId v : node.outputs) needed |= plan_.needed[v.value];
      if (!needed) continue;
      for (const ValueId v : node.outputs) plan_.needed[v.value] = true;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        plan_.needed[node.inputs[k].value] = true;
        readers_[node.inputs[k].value].push_back({&node, k});
      }
    }
  }

  // Whether the reader evaluates the value more often than it has elements.
  bool Repeats(ValueId v, const Node& reader) const {
    switch (reader.op) {
      case OpKind::kReduceSum:
      case OpKind::kReduceMean:
      case OpKind::kReduceMax:
      case OpKind::kReduceMin:
      case OpKind::kReduceProd:
      case OpKind::kArgMax:
      case OpKind::kArgMin:
      case OpKind::kConcat:
      case OpKind::kPad:
      case OpKind::kSlice:
        return false;
      default:
        break;
    }
    const absl::StatusOr<ir::Dim> mine = ir::Product(g_.tensor_type(v).dims);
    const absl::StatusOr<ir::Dim> its = ir::Product(g_.tensor_type(reader.outputs[0]).dims);
    return !mine.ok() || !its.ok() || *mine != *its;
  }

  std::string Refusal(ValueId v) const {
    const size_t i = v.value;
    if (stored_[i]) return "it is an output";
    if (ops_[i] > kExprOpsMax) return "its expression is too long for one kernel";
    const bool cheap = cost_[i] <= kCheap;
    if (readers_[i].size() > 1 && !cheap) {
      return absl::StrCat(readers_[i].size(), " readers would each recompute it");
    }
    for (const auto& [reader, input] : readers_[i]) {
      const Accepts accepts = Operand(*reader, input);
      if (accepts == Accepts::kMemory)
        return absl::StrCat(Sv(NameOf(reader->op)), " needs it in memory");
      if (accepts == Accepts::kMovement && !moves_[i]) {
        return absl::StrCat(Sv(NameOf(reader->op)), " reads it more than once");
      }
      if (!cheap && Repeats(v, *reader)) {
        return absl::StrCat(Sv(NameOf(reader->op)), " broadcasts it and would recompute it");
      }
    }
    return "";
  }

  void Decide(const Node& node) {
    const ValueId v = node.outputs[0];
    int cost = IsElementwise(node.op) ? CostOf(node.op) : node.op == OpKind::kGather ? 2 : 0;
    int ops = 1;
    bool moves = IsMovement(node.op);
    for (const ValueId input : node.inputs) {
      if (!plan_.inlined[input.value]) continue;
      cost += cost_[input.value];
      ops += ops_[input.value];
      moves = moves && moves_[input.value];
    }
    cost_[v.value] = cost;
    ops_[v.value] = ops;
    moves_[v.value] = moves;
    plan_.refused[v.value] = Refusal(v);
    plan_.inlined[v.value] = plan_.refused[v.value].empty();
  }

  struct Reader {
    const Node* node;
    size_t input;
  };

  const ir::Graph& g_;
  Fusion plan_;
  std::vector<int> cost_, ops_;  // of the expression, were it inlined
  std::vector<bool> moves_;      // the expression is movement of stored data
  std::vector<bool> stored_;
  std::vector<std::vector<Reader>> readers_;
};

}  // namespace

ir::ValueId RootOf(const ir::Graph& graph, ir::ValueId value) {
  const Node* node = graph.DefiningNode(value);
  while (node != nullptr && node->op == OpKind::kReshape) {
    value = node->inputs[0];
    node = graph.DefiningNode(value);
  }
  return value;
}

Fusion PlanFusion(const ir::Graph& graph) { return Planner(graph).Run(); }

}  // namespace cuvil::lower
