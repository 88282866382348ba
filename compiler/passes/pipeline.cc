#include "compiler/passes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "compiler/ir/verify.h"
#include "compiler/passes/canonicalise.h"
#include "compiler/passes/merge_common.h"

namespace cuvil::passes {

const std::vector<Pass>& GraphPasses() {
  static const auto* passes = new std::vector<Pass>{
      // One spelling for what importers write in several: identities vanish, movement ops combine.
      {"canonicalise", "remove identities and combine reshapes, transposes and casts",
       Canonicalise},
      // Equal pure nodes become one, so that later matchers see shared inputs as shared.
      {"merge_common", "merge nodes that compute the same value", MergeCommon},
      // What nothing reads goes last: the passes above leave it behind.
      {"erase_dead", "remove nodes, weights and constants that no output depends on",
       [](ir::Graph& g, ir::Fuel& fuel) -> absl::StatusOr<int> {
         return fuel.Take() ? ir::EraseDead(g) : 0;
       }},
  };
  return *passes;
}

absl::StatusOr<std::vector<Pass>> FindPasses(const std::vector<std::string>& names) {
  std::vector<Pass> out;
  for (const std::string& name : names) {
    const auto& all = GraphPasses();
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const Pass& p) { return p.name == name; });
    if (it == all.end()) {
      std::string known;
      for (const Pass& p : all) absl::StrAppend(&known, known.empty() ? "" : ", ", Sv(p.name));
      return absl::InvalidArgumentError(
          absl::StrCat("no pass is called '", name, "'; there are ", known));
    }
    out.push_back(*it);
  }
  return out;
}

absl::Status RunPasses(ir::Graph& graph, const std::vector<Pass>& passes,
                       const RunOptions& options) {
  ir::Fuel unlimited;
  ir::Fuel& fuel = options.fuel != nullptr ? *options.fuel : unlimited;
  for (const Pass& pass : passes) {
    if (std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end())
      continue;
    const auto start = std::chrono::steady_clock::now();
    auto rewrites = pass.run(graph, fuel);
    absl::Status status = rewrites.status();
    if (status.ok() && options.verify_each) status = ir::Verify(graph);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("pass '", Sv(pass.name), "': ", status.message()));
    }
    if (options.after) {
      options.after(pass, *rewrites,
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                    graph);
    }
  }
  return options.verify_each ? absl::OkStatus() : ir::Verify(graph);
}

}  // namespace cuvil::passes
