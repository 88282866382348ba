// What passes need to change a graph: uses, replacement, insertion, dead code, and fuel.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace cuvil::ir {

// A budget of rewrites, so that a miscompile can be bisected to one of them (`--fuel=N`). Passes
// call Take() just before each rewrite, in a fixed order, and leave the graph alone on false.
class Fuel {
 public:
  Fuel() = default;  // unlimited
  explicit Fuel(int64_t rewrites) : left_(rewrites) {}

  bool Take() {
    if (left_ <= 0) return false;
    --left_;
    ++taken_;
    return true;
  }
  int64_t taken() const { return taken_; }

 private:
  int64_t left_ = std::numeric_limits<int64_t>::max();
  int64_t taken_ = 0;
};

// For each value, how often body nodes and graph outputs use it. Indexed by ValueId.
std::vector<int32_t> CountUses(const Graph& graph);

// The body nodes that use the value, in body order, each once.
std::vector<NodeId> UsersOf(const Graph& graph, ValueId value);

// Makes every use of `from` in the body and the outputs a use of `to`. REQUIRES: equal types. The
// location of the node defining `to` grows by that of the node defining `from`.
void ReplaceAllUses(Graph& graph, ValueId from, ValueId to);

// Infers types and places a new node just before `before` in the body. Its location is the given
// one: pass the union of everything it stands for. Errors: as InferTypes; the graph is unchanged.
// REQUIRES: `before` is in the body.
absl::StatusOr<NodeId> InsertBefore(Graph& graph, NodeId before, OpKind op,
                                    std::vector<ValueId> inputs, Attrs attrs, LocId loc,
                                    std::string hint = "");

// The union of the locations of some nodes.
LocId UnionOf(Graph& graph, absl::Span<const NodeId> nodes);

// Takes out of the body every node no output depends on, and drops weights and constants that
// nothing uses any more. Inputs stay: they are the caller's interface. Returns the nodes erased.
int EraseDead(Graph& graph);

}  // namespace cuvil::ir
