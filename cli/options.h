// The flags that all commands with a model share, and loading one by them.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "cli/process.h"
#include "engine/model.h"
#include "kvcache/trim.h"

namespace cuvil::cli {

struct CommonOptions {
  std::string model;  // empty: the default model
  int threads = 0;    // 0: every usable core
  std::string numerics = "fast";
  std::string target;     // empty: the best this CPU has
  std::string cache_dir;  // empty: CUVIL_CACHE_DIR and so on
  bool no_cache = false;
  bool progress = false;  // also when stderr is no terminal
  bool perf_map = false;
};

// --model alone, for commands that only read the file.
void AddModelOption(CLI::App* app, CommonOptions* options);
// All of them.
void AddCommonOptions(CLI::App* app, CommonOptions* options);
// The first one given that is about loading a model here, which is all but --model; empty: none.
std::string GivenLoadFlag(const CLI::App& app);

// --max-kv-len and --kv-sinks.
void AddTrimOptions(CLI::App* app, kvcache::TrimPolicy* trim);

// Checks for options that hold an int64_t or a uint64_t: CLI11 takes the nearest value it can hold
// for a number beyond those, and reads 010 as 8. Empty: fine; else what is wrong.
std::string CheckInteger(const std::string& text);
std::string CheckSeed(const std::string& text);

// The file of the model: --model, CUVIL_MODEL, or the default model where `./dev model` puts it.
// NotFound when the default model is meant and is not there.
absl::StatusOr<std::string> ModelPath(const CommonOptions& options);
// Where the default model is looked for; empty without a home directory.
std::string DefaultModelPath();

// Checked --threads, --numerics, --target and cache folder.
absl::StatusOr<engine::LoadOptions> LoadOptionsOf(const CommonOptions& options);

// Opens, compiles and packs. Warns on stderr when the cache is of no use; writes the perf map when
// asked. The weights may still be landing when it returns, and with `serve_first` part of the code
// may still be compiling: the caller then ends with model->code().Finish(), which fills the cache.
absl::StatusOr<std::shared_ptr<const engine::Model>> LoadModel(const CommonOptions& options,
                                                               bool serve_first = false);
absl::StatusOr<std::shared_ptr<const engine::Model>> LoadModel(const CommonOptions& options,
                                                               plan::Numerics numerics,
                                                               bool serve_first = false);

}  // namespace cuvil::cli
