// The graph passes in the order they run, as a list of values: read pipeline.cc first. The runner
// is the one place that traces, times, skips by name and verifies; a failure blames the pass. Any
// thread; a graph belongs to the caller for the time of a run.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/rewrite.h"

namespace cuvil::passes {

struct Pass {
  std::string_view name;
  std::string_view doc;
  // Rewrites the graph, taking fuel before each rewrite; returns how many it made.
  std::function<absl::StatusOr<int>(ir::Graph&, ir::Fuel&)> run;
};

// Every pass, in pipeline order.
const std::vector<Pass>& GraphPasses();
// The passes of those names, in the order given. Errors name the unknown one and list the known.
absl::StatusOr<std::vector<Pass>> FindPasses(const std::vector<std::string>& names);

struct RunOptions {
  std::vector<std::string> skip;  // names of passes that do not run
  ir::Fuel* fuel = nullptr;       // null: unlimited
  bool verify_each = false;       // else only at the end
  // Called after each pass that was not skipped.
  std::function<void(const Pass& pass, int rewrites, double seconds, const ir::Graph& graph)> after;
};

// Runs `passes` in order. After an error the graph is whatever the failing pass left.
absl::Status RunPasses(ir::Graph& graph, const std::vector<Pass>& passes,
                       const RunOptions& options = {});

}  // namespace cuvil::passes
