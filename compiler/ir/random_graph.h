// Seeded random graphs and inputs for property tests: interpreter against compiled code, before
// against after a pass. Same seed, same graph, on every machine.
//
// Graphs hold elementwise ops, broadcasting, reductions, softmax, matmul, reshape, transpose,
// slice, concat, pad and gather over the symbols S and T. They are tame on purpose: every value
// stays bounded, nothing divides by nearly zero or takes the logarithm of a negative number, and
// every output is a continuous function of the float inputs, so a small tolerance is fair.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/ir/graph.h"
#include "compiler/ir/interpreter.h"

namespace cuvil::ir {

struct RandomGraphOptions {
  int node_count = 24;          // about; each step adds one to four nodes
  int64_t elements_max = 4096;  // of any value, at the largest symbols
  bool symbolic = true;         // else every extent is a constant
};

struct RandomGraph {
  Graph graph;
  // Inputs of i32 indices must stay in 0..limit-1.
  std::map<std::string, int64_t> index_limits;
};

RandomGraph MakeRandomGraph(uint64_t seed, const RandomGraphOptions& options = {});

// A value in range for every symbol; small and edge values are likely.
Bindings RandomBindings(const Graph& graph, uint64_t seed);

// Owns the tensors that Arguments borrows.
struct RandomArguments {
  interp::Arguments arguments;  // inputs and symbols; weights point into `weights`
  std::map<std::string, interp::Tensor> weights;
};

// Float tensors uniform in [-1, 1).
RandomArguments MakeRandomArguments(const RandomGraph& graph, const Bindings& bindings,
                                    uint64_t seed);

}  // namespace cuvil::ir
