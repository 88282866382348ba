#include "compiler/passes/merge_common.h"

#include <map>
#include <utility>
#include <vector>

namespace cuvil::passes {

absl::StatusOr<int> MergeCommon(ir::Graph& graph, ir::Fuel& fuel) {
  // Candidates share op and inputs; attributes are compared one by one.
  using Key = std::pair<ir::OpKind, std::vector<ir::ValueId>>;
  std::map<Key, std::vector<ir::NodeId>> seen;
  int rewrites = 0;
  for (const ir::NodeId id : std::vector<ir::NodeId>(graph.body().begin(), graph.body().end())) {
    const ir::Node& node = graph.node(id);
    if (ir::OpInfoOf(node.op).effect != ir::Effect::kPure || !node.regions.empty()) continue;
    std::vector<ir::NodeId>& earlier = seen[{node.op, node.inputs}];
    bool merged = false;
    for (const ir::NodeId other : earlier) {
      if (!(graph.node(other).attrs == node.attrs)) continue;
      if (!fuel.Take()) return rewrites;
      const std::vector<ir::ValueId> from = node.outputs, to = graph.node(other).outputs;
      for (size_t i = 0; i < from.size(); ++i) ir::ReplaceAllUses(graph, from[i], to[i]);
      ++rewrites;
      merged = true;
      break;
    }
    if (!merged) earlier.push_back(id);
  }
  return rewrites;
}

}  // namespace cuvil::passes
