#include "cli/options.h"

#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "cli/exit_code.h"
#include "cli/perf_map.h"
#include "runtime/executor.h"

namespace cuvil::cli {
namespace {

constexpr char kDefaultModelFile[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool WantsPerfMap(const CommonOptions& options) {
  const std::string value = Environment("CUVIL_PERF_MAP");
  return options.perf_map || (!value.empty() && value != "0");
}

template <typename T>
std::string CheckNumber(const std::string& text) {
  T value;
  const bool plain = absl::SimpleAtoi(text, &value) && absl::StrCat(value) == text;
  if (plain) return "";
  return absl::StrCat("takes a whole number from ", std::numeric_limits<T>::min(), " to ",
                      std::numeric_limits<T>::max(), ", not ", text);
}

}  // namespace

void AddTrimOptions(CLI::App* app, kvcache::TrimPolicy* trim) {
  app->add_option("--max-kv-len", trim->max_kv_len,
                  "Keep keys and values of at most N positions: the first few and the newest; "
                  "0: all")
      ->type_name("N")
      ->check(CheckInteger);
  app->add_option("--kv-sinks", trim->sinks, "With --max-kv-len: how many of the first are kept")
      ->type_name("N")
      ->check(CheckInteger)
      ->capture_default_str();
}

std::string CheckInteger(const std::string& text) { return CheckNumber<int64_t>(text); }
std::string CheckSeed(const std::string& text) { return CheckNumber<uint64_t>(text); }

void AddModelOption(CLI::App* app, CommonOptions* options) {
  app->add_option("--model", options->model,
                  "Model file (GGUF); default: $CUVIL_MODEL, else the default model")
      ->type_name("FILE");
}

void AddCommonOptions(CLI::App* app, CommonOptions* options) {
  AddModelOption(app, options);
  app->add_option("--threads", options->threads, "Worker threads; default: every usable core")
      ->type_name("N")
      ->check([](const std::string& text) {
        const long n = std::strtol(text.c_str(), nullptr, 10);
        return n >= 1 && n <= runtime::kWorkersMax
                   ? std::string()
                   : absl::StrCat("takes 1 to ", runtime::kWorkersMax, ", not ", text);
      });
  app->add_option(
         "--numerics", options->numerics,
         "exact: f32 throughout; fast: 8-bit activations; deterministic: fast, and a token never "
         "depends on who shares its batch")
      ->type_name("exact|fast|deterministic")
      ->capture_default_str();
  app->add_option("--target", options->target,
                  "Machine to generate code for; default: the best this CPU has")
      ->type_name("NAME");
  app->add_option("--cache-dir", options->cache_dir,
                  "Folder of compiled kernels; default: $CUVIL_CACHE_DIR, "
                  "else ~/.cache/cuvil")
      ->type_name("DIR");
  app->add_flag("--no-cache", options->no_cache, "Neither read nor write compiled kernels");
  app->add_flag("--progress", options->progress,
                "Say what is going on, even when stderr is no terminal");
  app->add_flag("--perf-map", options->perf_map,
                "Write /tmp/perf-PID.map, so that perf names kernels");
}

std::string GivenLoadFlag(const CLI::App& app) {
  CLI::App ours;
  CommonOptions unused;
  AddCommonOptions(&ours, &unused);
  for (const CLI::Option* option : ours.get_options()) {
    const std::string flag = option->get_name();
    if (flag != "--model" && flag != "--help" && app.count(flag) > 0) return flag;
  }
  return "";
}

std::string DefaultModelPath() {
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) {
    return absl::StrCat(cache, "/cuvil/models/", kDefaultModelFile);
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return absl::StrCat(home, "/.cache/cuvil/models/", kDefaultModelFile);
  }
  return "";
}

absl::StatusOr<std::string> ModelPath(const CommonOptions& options) {
  if (!options.model.empty()) return options.model;
  if (std::string path = Environment("CUVIL_MODEL"); !path.empty()) return path;
  std::string path = DefaultModelPath();
  if (!path.empty() && access(path.c_str(), F_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat("the default model is not at '", path,
                                          "'; run ./dev model to fetch it, or pass --model FILE"));
}

absl::StatusOr<engine::LoadOptions> LoadOptionsOf(const CommonOptions& options) {
  engine::LoadOptions load;
  ASSIGN_OR_RETURN(load.numerics, plan::ParseNumerics(options.numerics));
  load.target = options.target;
  load.threads = options.threads;
  if (!options.no_cache) load.cache_dir = engine::DefaultCacheDir(options.cache_dir);
  return load;
}

absl::StatusOr<std::shared_ptr<const engine::Model>> LoadModel(const CommonOptions& options,
                                                               plan::Numerics numerics,
                                                               bool serve_first) {
  ASSIGN_OR_RETURN(const std::string path, ModelPath(options));
  ASSIGN_OR_RETURN(engine::LoadOptions load, LoadOptionsOf(options));
  load.numerics = numerics;
  load.serve_first = serve_first && !WantsPerfMap(options);  // the map names all of the code
  std::shared_ptr<const engine::Model> model;
  {
    Progress progress(options.progress);
    progress.Say(absl::StrCat("loading ", path, " and compiling its kernels"));
    ASSIGN_OR_RETURN(model, engine::Model::Load(path, load));
  }
  if (!model->timing().cache_note.empty()) PrintWarning(model->timing().cache_note);
  if (WantsPerfMap(options)) {
    if (const absl::Status written = WritePerfMap(*model->code().compiled()); !written.ok()) {
      PrintWarning(Sv(written.message()));
    }
  }
  return model;
}

absl::StatusOr<std::shared_ptr<const engine::Model>> LoadModel(const CommonOptions& options,
                                                               bool serve_first) {
  ASSIGN_OR_RETURN(const plan::Numerics numerics, plan::ParseNumerics(options.numerics));
  return LoadModel(options, numerics, serve_first);
}

}  // namespace cuvil::cli
