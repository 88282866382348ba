// Compiles a CU-IR graph of tensor ops over symbolic shapes to kernels and a Program. This is the
// general path: any graph, correct first; the templates (compiler/kernel/template_*.h) serve the
// shapes that models spend their time in.
//
// The Program's interface:
//   header   the graph's symbols in order, then one entry "dim:<text>" per Lowered::derived;
//   inputs   the graph's inputs, then its weights, dense row-major (block types as in GGUF files);
//   outputs  the graph's outputs;
//   plans    one, whose arena fits every value of the symbols in their ranges.
// Constants of the graph are part of the kernels. Every buffer is read and written only inside its
// tensor's bytes. A gather index out of range reads the nearest row: a kernel cannot report errors,
// so callers check indices that they do not trust.
//
// Numbers are those of ops.def; reductions, norms, softmax and matmul of floats accumulate in f64,
// first each lane on its own and then the lanes pairwise, so results differ between vector widths
// by rounding of f64 only. Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"
#include "runtime/program.h"

namespace cuvil::lower {

struct Lowered {
  runtime::Program program;
  std::vector<kernel::Kernel> kernels;  // one per Program::kernels, verified
  // Extents that a launch needs and that no single symbol gives: header entry symbols + i is
  // derived[i] at the step's symbol values.
  std::vector<ir::Dim> derived;
};

// Header values of one step, in the Program's order. Errors: a symbol out of its range, or an
// extent that overflows.
absl::StatusOr<std::vector<int64_t>> HeaderValues(const ir::Graph& graph, const Lowered& lowered,
                                                  const ir::Bindings& bindings);

// Unimplemented, naming the op and the type, for what README.md lists as missing; InvalidArgument
// for shapes past the limits of ir/type.h. REQUIRES: a verified graph.
absl::StatusOr<Lowered> LowerGraph(const ir::Graph& graph, const kernel::Machine& machine);

}  // namespace cuvil::lower
