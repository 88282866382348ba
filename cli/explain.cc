// cuvil explain: which kernels a model became, what they cost, and why each launch is what it is.
#include <sys/stat.h>

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
    "Spills are loads and stores of registers that did not suffice, inside innermost loops: 0 is "
    "good.\n"
    "The model is compiled anew, so that the times are this machine's.\n\n"
    "Examples:\n"
    "  cuvil explain                         the default model on this machine\n"
    "  cuvil explain model.gguf --target cpu:avx2\n"
    "  cuvil explain build/model             a folder that cuvil compile wrote\n"
    "  cuvil explain model.gguf --json       every launch with its sources";

struct Options {
  CommonOptions common;
  std::string path;
  bool json = false;
};

absl::StatusOr<Json> ExplainFolder(const std::string& path) {
  ASSIGN_OR_RETURN(ArtifactFolder folder, ReadArtifactFolder(path));
  ASSIGN_OR_RETURN(const Json json, ParseJson(folder.artifact.program_json));
  ASSIGN_OR_RETURN(runtime::Program program, runtime::FromJson(json));
  if (program.kernels.size() != folder.artifact.objects.size()) {
    return absl::DataLossError(absl::StrCat("the artifact '", path, "' has ",
                                            folder.artifact.objects.size(), " objects for ",
                                            program.kernels.size(), " kernels; compile it again"));
  }
  Objects objects;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    driver::ObjectFile& file = folder.artifact.objects[i];
    objects.emplace_back(file.symbol, std::move(file.object));
    if (!folder.compile_s.empty()) program.kernels[i].compile_s = folder.compile_s[i];
  }
  return Explain(program, objects);
}

absl::StatusOr<Json> ExplainFile(const std::string& path, const CommonOptions& common) {
  ASSIGN_OR_RETURN(const CompiledModel model, CompileModel(path, common, false));
  return Explain(*model.compiled.program, model.compiled.objects);
}

absl::StatusOr<int> RunExplain(Options o) {
  if (!o.path.empty()) o.common.model = o.path;
  ASSIGN_OR_RETURN(const std::string path, ModelPath(o.common));
  struct stat info;
  const bool folder = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  ASSIGN_OR_RETURN(const Json json, folder ? ExplainFolder(path) : ExplainFile(path, o.common));
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(json));
  } else {
    RETURN_IF_ERROR(WriteOut(std::string_view(ExplanationText(json))));
  }
  return kDone;
}

}  // namespace

void AddExplain(CLI::App& app, Handler* chosen) {
  CLI::App* sub =
      Subcommand(app, "explain", "Show which kernels a model becomes, and why", kFooter);
  auto o = std::make_shared<Options>();
  sub->add_option("path", o->path, "Model file, or a folder that cuvil compile wrote")
      ->type_name("FILE|DIR");
  sub->add_flag("--json", o->json, "One JSON object instead of tables");
  AddCommonOptions(sub, &o->common);
  sub->callback([o, chosen] { *chosen = [o] { return RunExplain(*o); }; });
}

}  // namespace cuvil::cli
