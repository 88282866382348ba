// Decides which values of a graph get memory of their own and which are recomputed where they are
// read. Deterministic; looks at the graph only.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace cuvil::lower {

struct Fusion {
  std::vector<bool> needed;          // by value id: an output depends on it
  std::vector<bool> inlined;         // by value id: computed by its readers
  std::vector<std::string> refused;  // by value id: why an op that could be inlined is not
};

// Elementwise chains and movement ops are inlined when that repeats no real work:
//  - every reader must be able to take an expression (matmul, norms, softmax and rope read an
//    operand several times and only take movement of stored data; reshape and gather tables need
//    memory);
//  - with several readers, or a reader that broadcasts it, the value must be cheap;
//  - an expression stays under kExprOpsMax ops.
Fusion PlanFusion(const ir::Graph& graph);

// Registers and the depth of recursion over expressions bound how much one kernel may inline.
inline constexpr int kExprOpsMax = 48;
// Up to this cost (CostOf) recomputing beats a store and a load.
inline constexpr int kCheap = 3;

// The producer behind any reshapes, which share its memory.
ir::ValueId RootOf(const ir::Graph& graph, ir::ValueId value);

}  // namespace cuvil::lower
