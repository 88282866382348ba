// A loaded model: the file, its configuration and tokenizer, the compiled program and the packed
// weights. Once the program is there, weights are packed in the background: a step may start at
// once, and waits at each layer until that layer's weights have landed. With serve_first the same
// holds for the code: the model answers when the widest plan has it, and steps change to the others
// when they have theirs (model_code.h).
//
// Immutable after Load; shared as shared_ptr<const Model>; any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "compiler/driver/compile.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/file.h"
#include "compiler/ir/graph.h"
#include "engine/model_code.h"
#include "runtime/weights.h"
#include "text/tokenizer.h"

namespace cuvil::engine {

struct LoadOptions {
  plan::Numerics numerics = plan::Numerics::kFast;
  std::string target;     // empty: the best this CPU has
  int threads = 0;        // 0: UsableCores()
  std::string cache_dir;  // empty: no artifact cache
  bool keep_ir = false;   // keep kernel and LLVM IR for explain
  // Return as soon as the widest plan, which can run every step, has its code; a thread of low
  // priority emits the rest. What is in the cache, or with keep_ir, is whole at once.
  bool serve_first = false;
  // Runs on that thread before it begins; an error ends it. For tests. Null: nothing.
  std::function<absl::Status()> before_rest;
  // Asked before weights are packed, when everything's size is known: an error ends the load with
  // it. Asked again when the program's code in the cache turns out damaged. Null: always OK.
  std::function<absl::Status(const gguf::ModelConfig& config, const runtime::Program& program,
                             int64_t code_bytes)>
      admit;
};

struct LoadTiming {
  double open_s = 0;  // file, configuration, tokenizer
  // Passes to linked code, or the cache read; until the widest plan had its code if `tier0`.
  double compile_s = 0;
  bool tier0 = false;  // it could answer before its code was whole
  bool from_cache = false;
  std::string cache_note;  // one warning for people; empty when all is well
};

// What is left of a model without its weights: enough to be back as fast as they can be packed.
struct SleepingModel;

class Model {
 public:
  // Errors of the file, of an unsupported architecture or size, or of memory: one sentence each.
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& path,
                                                           const LoadOptions& options);

  // The file, tokenizer and code of this model, for Wake. The model stays as it is.
  std::shared_ptr<const SleepingModel> Sleep() const;
  // Packs the weights again. Errors of memory.
  static absl::StatusOr<std::shared_ptr<const Model>> Wake(
      std::shared_ptr<const SleepingModel> sleeping);

  const std::string& path() const { return path_; }
  const gguf::ModelConfig& config() const { return config_; }
  const gguf::File& file() const { return *file_; }
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const { return tokenizer_; }
  // Its figures of kernels are those at the end of Load.
  const runtime::Program& program() const { return *program_; }
  const ModelCode& code() const { return *code_; }
  const runtime::WeightStore& weights() const { return *weights_; }
  const LoadTiming& timing() const { return timing_; }
  const emit::Target& target() const { return target_; }
  plan::Numerics numerics() const { return numerics_; }
  int threads() const { return threads_; }

 private:
  Model() = default;
  absl::Status StartWeights(const runtime::Program& program);

  std::string path_;
  std::shared_ptr<const gguf::File> file_;
  gguf::ModelConfig config_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const runtime::Program> program_;
  std::shared_ptr<const ModelCode> code_;
  std::unique_ptr<runtime::WeightStore> weights_;
  LoadTiming timing_;
  emit::Target target_;
  plan::Numerics numerics_ = plan::Numerics::kFast;
  int threads_ = 1;
};

// The graph of the model's step with the program's row limits: what `compile` and `explain` show.
absl::StatusOr<ir::Graph> StepGraphOf(const gguf::File& file, const gguf::ModelConfig& config);

// What a model will take, before anything of it is loaded: from the file's head, in milliseconds.
struct Outline {
  gguf::ModelConfig config;
  runtime::Program program;  // without code
};
// Errors as of Model::Load.
absl::StatusOr<Outline> ReadOutline(const std::string& path, const LoadOptions& options);

// The artifact cache folder: the flag, else CUVIL_CACHE_DIR, else XDG_CACHE_HOME/cuvil, else
// HOME/.cache/cuvil; empty when none of them is set.
std::string DefaultCacheDir(const std::string& flag);

}  // namespace cuvil::engine
