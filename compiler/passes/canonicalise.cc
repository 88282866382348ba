#include "compiler/passes/canonicalise.h"

#include <cmath>
#include <cstring>
#include <optional>

namespace cuvil::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// The number a rank-0 or one-element f32 constant holds.
std::optional<float> ScalarF32(const ir::Graph& g, ValueId v) {
  const ir::Constant* c = g.FindConstant(v);
  if (c == nullptr || g.tensor_type(v).dtype != DType::kF32 || c->bytes.size() != 4)
    return std::nullopt;
  float f;
  std::memcpy(&f, c->bytes.data(), 4);
  return f;
}

bool IsIdentityPermutation(absl::Span<const int64_t> perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// What the node's result equals, when it equals one of the values behind it.
std::optional<ValueId> SameAs(const ir::Graph& g, const Node& n) {
  const auto same_type = [&](ValueId v) { return g.type(v) == g.type(n.outputs[0]); };
  switch (n.op) {
    case OpKind::kAdd: {
      // -0 + 0 is +0: only a negative zero is neutral for every x.
      for (const int i : {0, 1}) {
        const auto c = ScalarF32(g, n.inputs[1 - i]);
        if (c && *c == 0 && std::signbit(*c) && same_type(n.inputs[i])) return n.inputs[i];
      }
      return std::nullopt;
    }
    case OpKind::kSub: {
      const auto c = ScalarF32(g, n.inputs[1]);
      if (c && *c == 0 && !std::signbit(*c) && same_type(n.inputs[0])) return n.inputs[0];
      return std::nullopt;
    }
    case OpKind::kMul:
      for (const int i : {0, 1}) {
        const auto c = ScalarF32(g, n.inputs[1 - i]);
        if (c && *c == 1 && same_type(n.inputs[i])) return n.inputs[i];
      }
      return std::nullopt;
    case OpKind::kDiv: {
      const auto c = ScalarF32(g, n.inputs[1]);
      if (c && *c == 1 && same_type(n.inputs[0])) return n.inputs[0];
      return std::nullopt;
    }
    case OpKind::kNeg: {
      const Node* inner = g.DefiningNode(n.inputs[0]);
      if (inner != nullptr && inner->op == OpKind::kNeg) return inner->inputs[0];
      return std::nullopt;
    }
    case OpKind::kReshape:
    case OpKind::kBroadcastTo:
    case OpKind::kCast:
      return same_type(n.inputs[0]) ? std::optional(n.inputs[0]) : std::nullopt;
    case OpKind::kTranspose:
      return IsIdentityPermutation(n.attrs.Ints("perm")) ? std::optional(n.inputs[0])
                                                         : std::nullopt;
    default:
      return std::nullopt;
  }
}

// reshape(reshape(x)) reads x; transpose(transpose(x)) permutes once. True when the node changed.
bool Combine(ir::Graph& g, NodeId id) {
  Node& n = g.node(id);
  if (n.op != OpKind::kReshape && n.op != OpKind::kTranspose) return false;
  const Node* inner = g.DefiningNode(n.inputs[0]);
  if (inner == nullptr || inner->op != n.op) return false;
  if (n.op == OpKind::kTranspose) {
    const auto outer_perm = n.attrs.Ints("perm"), inner_perm = inner->attrs.Ints("perm");
    std::vector<int64_t> perm;
    for (const int64_t p : outer_perm) perm.push_back(inner_perm[p]);
    n.attrs.Set("perm", perm);
  }
  n.loc = g.UnionLoc(n.loc, inner->loc);
  n.inputs[0] = inner->inputs[0];
  return true;
}

}  // namespace

absl::StatusOr<int> Canonicalise(ir::Graph& graph, ir::Fuel& fuel) {
  int rewrites = 0;
  // Body order: what a node reads is canonical already, so one sweep suffices.
  for (const NodeId id : std::vector<NodeId>(graph.body().begin(), graph.body().end())) {
    const Node* inner =
        graph.node(id).inputs.empty() ? nullptr : graph.DefiningNode(graph.node(id).inputs[0]);
    if (inner != nullptr && inner->op == graph.node(id).op &&
        (inner->op == OpKind::kReshape || inner->op == OpKind::kTranspose)) {
      if (!fuel.Take()) return rewrites;
      rewrites += Combine(graph, id);
    }
    if (const auto same = SameAs(graph, graph.node(id))) {
      if (!fuel.Take()) return rewrites;
      ir::ReplaceAllUses(graph, graph.node(id).outputs[0], *same);
      ++rewrites;
    }
  }
  return rewrites;
}

}  // namespace cuvil::passes
