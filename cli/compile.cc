// cuvil compile: writes what a model becomes on a target as a folder: launch lists, objects and the
// text of every kernel.
#include <memory>
#include <string>
#include <utility>

#include "cli/artifact_dir.h"
#include "cli/command.h"
#include "cli/compile_model.h"
#include "cli/exit_code.h"
#include "cli/explanation.h"
#include "cli/output.h"
#include "runtime/program_json.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "The same model, target and options give the same program and objects, byte for byte.\n\n"
    "Examples:\n"
    "  cuvil compile --model model.gguf -o build/model\n"
    "  cuvil compile --target cpu:avx2 --llvm-ir -o build/model-avx2      for another machine\n"
    "  cuvil explain build/model";

struct Options {
  CommonOptions common;
  std::string output;
  bool explain = false, llvm_ir = false;
};

absl::StatusOr<int> Compile(const Options& o) {
  ASSIGN_OR_RETURN(const std::string path, ModelPath(o.common));
  RETURN_IF_ERROR(CheckArtifactPath(o.output));  // before the work, not after it
  ASSIGN_OR_RETURN(CompiledModel model, CompileModel(path, o.common, true));
  driver::Compiled& compiled = model.compiled;
  ASSIGN_OR_RETURN(const Json explanation, Explain(*compiled.program, compiled.objects));

  ArtifactFolder folder;
  runtime::Program program = *compiled.program;
  for (runtime::KernelDecl& kernel : program.kernels) {
    folder.compile_s.push_back(kernel.compile_s);
    kernel.compile_s = 0;  // a time would make every artifact a different one
  }
  folder.key = program.key;
  folder.artifact.program_json = WriteJson(runtime::ToJson(program), 1);
  folder.artifact.key_components = std::move(model.key_components);
  for (auto& [symbol, object] : compiled.objects) {
    folder.artifact.objects.push_back({symbol, std::move(object)});
  }
  folder.kernel_ir = std::move(compiled.kernel_ir);
  if (o.llvm_ir) folder.llvm_ir = std::move(compiled.llvm_ir);
  if (const absl::Status written = WriteArtifactFolder(o.output, folder); !written.ok()) {
    return absl::IsAlreadyExists(written) ? written : WorkFailed(written);
  }
  if (o.explain) RETURN_IF_ERROR(WriteOut(std::string_view(ExplanationText(explanation))));
  return kDone;
}

}  // namespace

void AddCompile(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "compile", "Compile a model into a folder", kFooter);
  auto o = std::make_shared<Options>();
  sub->add_option("-o,--output", o->output, "Folder to write; replaced if it is an artifact")
      ->type_name("DIR")
      ->required();
  sub->add_flag("--explain", o->explain, "Also print what cuvil explain prints");
  sub->add_flag("--llvm-ir", o->llvm_ir, "Also write the LLVM IR of every kernel");
  AddCommonOptions(sub, &o->common);
  sub->callback([o, chosen] { *chosen = [o] { return Compile(*o); }; });
}

}  // namespace cuvil::cli
