#include "compiler/ir/rewrite.h"

#include <algorithm>
#include <utility>

namespace cuvil::ir {

std::vector<int32_t> CountUses(const Graph& graph) {
  std::vector<int32_t> uses(graph.value_count());
  for (NodeId id : graph.body()) {
    for (ValueId input : graph.node(id).inputs) ++uses[input.value];
  }
  for (const Output& output : graph.outputs()) ++uses[output.value.value];
  return uses;
}

std::vector<NodeId> UsersOf(const Graph& graph, ValueId value) {
  std::vector<NodeId> users;
  for (NodeId id : graph.body()) {
    const std::vector<ValueId>& inputs = graph.node(id).inputs;
    if (std::find(inputs.begin(), inputs.end(), value) != inputs.end()) users.push_back(id);
  }
  return users;
}

void ReplaceAllUses(Graph& graph, ValueId from, ValueId to) {
  if (from == to) return;
  CUVIL_CHECK(graph.type(from) == graph.type(to), "a replacement must have the same type");
  for (NodeId id : graph.body()) {
    for (ValueId& input : graph.node(id).inputs) {
      if (input == from) input = to;
    }
  }
  for (Output& output : graph.mutable_outputs()) {
    if (output.value == from) output.value = to;
  }
  const Value& old_value = graph.value(from);
  const Value& new_value = graph.value(to);
  if (old_value.origin == Origin::kNode && new_value.origin == Origin::kNode) {
    Node& survivor = graph.node(new_value.node);
    survivor.loc = graph.UnionLoc(survivor.loc, graph.node(old_value.node).loc);
  }
}

absl::StatusOr<NodeId> InsertBefore(Graph& graph, NodeId before, OpKind op,
                                    std::vector<ValueId> inputs, Attrs attrs, LocId loc,
                                    std::string hint) {
  std::vector<const Type*> types;
  for (ValueId input : inputs) types.push_back(&graph.type(input));
  ASSIGN_OR_RETURN(std::vector<Type> results, InferTypes({op, types, attrs, graph.symbols()}));
  std::vector<NodeId>& body = graph.mutable_body();
  const auto at = std::find(body.begin(), body.end(), before);
  CUVIL_CHECK(at != body.end(), "the node to insert before is not in the body");
  const size_t index = at - body.begin();
  const NodeId id = graph.NewNode(op, std::move(inputs), std::move(attrs), std::move(results), loc,
                                  std::move(hint));
  body.insert(body.begin() + index, id);
  return id;
}

LocId UnionOf(Graph& graph, absl::Span<const NodeId> nodes) {
  LocId loc;
  for (NodeId id : nodes) loc = graph.UnionLoc(loc, graph.node(id).loc);
  return loc;
}

int EraseDead(Graph& graph) {
  std::vector<bool> live(graph.value_count());
  for (const Output& output : graph.outputs()) live[output.value.value] = true;
  std::vector<NodeId> kept;  // backwards
  const std::vector<NodeId> body(graph.body().begin(), graph.body().end());
  for (auto at = body.rbegin(); at != body.rend(); ++at) {
    const Node& node = graph.node(*at);
    const bool used = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId id) { return live[id.value]; });
    if (!used) continue;
    for (ValueId input : node.inputs) live[input.value] = true;
    kept.push_back(*at);
  }
  std::reverse(kept.begin(), kept.end());
  const int erased = static_cast<int>(body.size() - kept.size());
  graph.mutable_body() = std::move(kept);
  graph.KeepNamed(live);
  return erased;
}

}  // namespace cuvil::ir
