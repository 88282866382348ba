#include "cli/compile_model.h"

#include <memory>
#include <utility>

#include "base/cpu.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/file.h"

namespace cuvil::cli {

absl::StatusOr<CompiledModel> CompileModel(const std::string& path, const CommonOptions& options,
                                           bool keep_ir) {
  ASSIGN_OR_RETURN(const engine::LoadOptions load, LoadOptionsOf(options));
  driver::CompileOptions compile;
  compile.numerics = load.numerics;
  compile.threads = load.threads > 0 ? load.threads : UsableCores();
  compile.keep_ir = keep_ir;
  // Unlike running, compiling may be for another machine.
  if (load.target.empty()) {
    ASSIGN_OR_RETURN(compile.target, emit::BestTarget(AcquireCpuFeatures()));
  } else {
    ASSIGN_OR_RETURN(compile.target, emit::FindTarget(load.target));
  }
  Progress progress(options.progress);
  progress.Say(absl::StrCat("compiling ", path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const gguf::File> file, gguf::File::Open(path));
  ASSIGN_OR_RETURN(const gguf::ModelConfig config, gguf::ReadConfig(*file));
  ASSIGN_OR_RETURN(const ir::Graph graph, engine::StepGraphOf(*file, config));
  CompiledModel result;
  result.key_components = driver::KeyComponents(graph, compile);
  ASSIGN_OR_RETURN(result.compiled, driver::CompileStep(graph, compile));
  return result;
}

}  // namespace cuvil::cli
