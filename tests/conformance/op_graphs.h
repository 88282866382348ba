// Handwritten graphs that cover every op and dtype of the lowering's table, and the shapes that
// loop nests get wrong: empty extents, extents below and just past a vector, strides, broadcasts.
//
// Input names tell the oracle what to fill in: "index<n>_..." whole numbers in 0..n-1, "tame..."
// reals in [-4, 4), anything else every kind of value the dtype has.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace cuvil::conformance {

struct OpCase {
  std::string name;
  ir::Graph graph;
};

std::vector<OpCase> AllOpCases();

}  // namespace cuvil::conformance
