// Runs lowered graphs as machine code on this thread, and watches memory while it does: buffers are
// poisoned and fenced, tiles run in a shuffled order. Deliberately without the interpreter.
#pragma once

#include <memory>
#include <vector>

#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/lower/lower.h"
#include "tests/conformance/graph_record.h"

namespace cuvil::conformance {

class CompiledGraph {
 public:
  // Lowers, checks the plan, emits and links. Errors are those of the stages.
  static absl::StatusOr<CompiledGraph> Compile(const ir::Graph& graph, const emit::Target& target);

  // Output bytes, in the graph's order. Internal when a kernel writes outside its buffers.
  absl::StatusOr<std::vector<Bytes>> Run(const std::vector<int64_t>& symbols,
                                         const std::vector<Bytes>& inputs, uint64_t seed) const;

  const lower::Lowered& lowered() const { return lowered_; }

 private:
  ir::Graph graph_;
  lower::Lowered lowered_;
  std::shared_ptr<const emit::CodeImage> image_;
};

}  // namespace cuvil::conformance
