// The nests of each op: one function per family, from a graph node to loop nests. Stateless apart
// from the environment; any thread.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/lower/fuse.h"
#include "compiler/lower/nest.h"

namespace cuvil::lower {

// What nests need to know about memory.
class Environment {
 public:
  virtual ~Environment() = default;
  // The storage that holds the value, dense and row-major; made on first use.
  virtual int StorageOf(ir::ValueId value) = 0;
  // Storage filled with these bytes.
  virtual int StorageOfBytes(std::vector<uint8_t> bytes) = 0;
};

// A nest, and the nodes whose work it does.
struct NodeNest {
  Nest nest;
  std::vector<ir::NodeId> nodes;
};

// Nests that compute the node's outputs into their storage, in order; inlined operands become part
// of them. Unimplemented for ops and types outside README.md's table. REQUIRES: not a reshape.
absl::StatusOr<std::vector<NodeNest>> NestsOf(const ir::Graph& graph, ir::NodeId node,
                                              const Fusion& fusion, Environment& env);

// A copy of one dense storage into another.
absl::StatusOr<NodeNest> CopyNest(const ir::TensorType& type, int from, int to);

}  // namespace cuvil::lower
