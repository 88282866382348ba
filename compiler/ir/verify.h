// The graph verifier: run after every pass in debug builds and at stage ends in release. It is the
// definition of a well-formed graph, and it never crashes on a broken one.
#pragma once

#include "base/status.h"
#include "compiler/ir/graph.h"

namespace cuvil::ir {

// Checks, in this order:
//  - names: the graph's and symbols' are identifiers, symbols have sane ranges; inputs, weights and
//    constants share one set of unique names, outputs have another;
//  - named values: every type is legal, constants are scalar-typed with exactly their bytes;
//  - each body node: ids in range, placed once, inputs defined earlier, outputs its own, arity and
//    attributes as ops.def says, types equal to those inferred again, no regions;
//  - state: a value is overwritten at most once and not read afterwards, so state can be updated in
//    place, and the last value of every written state is an output;
//  - outputs: defined values.
// Error: InvalidArgument naming the first offender and its location.
absl::Status Verify(const Graph& graph);

// [A-Za-z_][A-Za-z0-9_.]*, at most 256 characters: how bare names are spelled in text.
bool IsIdentifier(std::string_view name);

}  // namespace cuvil::ir
