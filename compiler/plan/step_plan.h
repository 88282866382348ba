// From groups to a Program: picks a kernel template and its parameters for every group, once per
// regime; lays out weights (once, for all regimes: weight_plan.h) and the arena (arena.h); writes
// the launch lists. Pure functions, any thread.
//
// Regimes: "decode" serves few rows and lets every worker convert the activations it needs in a
// launch's prologue (five launches a layer); "prefill" serves many rows and converts them once, in
// launches of their own.
//
// Header scalars, inputs and outputs are those of runtime/step_inputs.h.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"
#include "compiler/passes/partition.h"
#include "compiler/plan/numerics.h"
#include "runtime/program.h"

namespace cuvil::plan {

struct StepOptions {
  Numerics numerics = Numerics::kFast;
  kernel::Machine machine;
  int64_t decode_rows = 8;     // largest step of the decode regime
  int64_t prefill_rows = 512;  // largest step at all
  int page_tokens = 32;
};

struct StepProgram {
  runtime::Program program;  // kernels[] aligned with `kernels`; compile figures still empty
  std::vector<kernel::Kernel> kernels;
};

// `groups` are those of Partition(graph). Unimplemented when sizes do not fit the templates; each
// sentence says which size, its value and what would fit.
absl::StatusOr<StepProgram> PlanStep(const ir::Graph& graph,
                                     const std::vector<passes::Group>& groups,
                                     const StepOptions& options);

}  // namespace cuvil::plan
