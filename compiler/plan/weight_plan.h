// Which packed weights the groups of a step need, made from which rows of the file, and where each
// lies. Decided once, before any regime, so that every plan shares them. Pure functions, any
// thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/passes/partition.h"
#include "runtime/layout.h"
#include "runtime/program.h"

namespace cuvil::plan {

// The weights of one group, as indices into Program::weights; -1: none.
struct GroupWeights {
  int matrix = -1, norm = -1, bias = -1, q_norm = -1, k_norm = -1;
  WeightLayout layout = WeightLayout::kF32;  // of the matrix
  ActFormat act = ActFormat::kF32;           // of the rows it multiplies
};

std::string_view LayoutName(WeightLayout layout);

// OK, or Unimplemented: sizes a template cannot take, naming what, the value and the multiple.
absl::Status RequireMultiple(std::string_view what, int64_t value, int64_t of);

// Fills program.weights, weights_bytes and segments; one entry per group comes back. With `exact`,
// activations stay f32; else rows that meet a block layout are a8b32. Unimplemented for a height
// that no template takes.
absl::StatusOr<std::vector<GroupWeights>> PlanWeights(const ir::Graph& graph,
                                                      const std::vector<passes::Group>& groups,
                                                      bool exact, runtime::Program& program);

}  // namespace cuvil::plan
