#include "engine/model.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "compiler/driver/cache.h"
#include "compiler/import/gguf/graph.h"
#include "compiler/import/gguf/tensors.h"
#include "compiler/import/gguf/vocab.h"

namespace cuvil::engine {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Vectors are read element by element, matrices row by row.
runtime::TensorSource SourceOf(const gguf::File& file) {
  return [&file](std::string_view name) -> absl::StatusOr<runtime::TensorView> {
    const gguf::Tensor* t = file.FindTensor(name);
    if (t == nullptr)
      return absl::NotFoundError(
          absl::StrCat("tensor '", Sv(name), "' is missing from '", file.name(), "'"));
    if (t->rank == 1) return runtime::TensorView{t->dtype, t->data, 1, t->elements};
    return runtime::TensorView{t->dtype, t->data, t->dims[0], t->rows()};
  };
}

// Gives pages of the file back once their tensors are packed, many at a time: each time, all
// threads lose their translations. The last of `tensors` gives back the rest. Any thread.
class UsedPages {
 public:
  UsedPages(const MappedFile* file, size_t tensors) : file_(file), left_(tensors) {}

  void Add(size_t begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[begin] = begin + bytes;
    bytes_ += bytes;
    if (--left_ == 0 || bytes_ >= kReleaseBytes) Release();
  }

 private:
  static constexpr size_t kReleaseBytes = 32 << 20;
  static constexpr size_t kGapMax = 4096;  // between tensors: alignment, or a small one in use

  void Release() {
    for (auto range = ranges_.begin(); range != ranges_.end();) {
      size_t end = range->second;
      auto next = std::next(range);
      for (; next != ranges_.end() && next->first <= end + kGapMax; ++next) {
        end = std::max(end, next->second);
      }
      file_->Release(range->first, end - range->first);
      range = next;
    }
    ranges_.clear();
    bytes_ = 0;
  }

  const MappedFile* const file_;  // outlives the store that packs from it
  std::mutex mutex_;
  std::map<size_t, size_t> ranges_;  // begin to end; guarded by mutex_
  size_t bytes_ = 0;                 // guarded by mutex_
  size_t left_;                      // guarded by mutex_
};

// Distinct tensors of the file that the weights are packed from.
size_t TensorCount(const runtime::Program& program) {
  std::set<std::string_view> names;
  for (const runtime::WeightDecl& weight : program.weights) {
    for (const runtime::RowRun& run : weight.runs) {
      if (!run.tensor.empty()) names.insert(run.tensor);
    }
  }
  return names.size();
}

absl::StatusOr<std::shared_ptr<const text::Tokenizer>> ReadTokenizer(const gguf::File& file) {
  ASSIGN_OR_RETURN(text::VocabSpec vocab, gguf::ReadVocab(file));
  return text::Tokenizer::Create(std::move(vocab));
}

absl::StatusOr<emit::Target> TargetOf(const LoadOptions& options) {
  const CpuFeatures& features = AcquireCpuFeatures();
  if (options.target.empty()) return emit::BestTarget(features);
  ASSIGN_OR_RETURN(const emit::Target target, emit::FindTarget(options.target));
  if (!emit::Runs(target, features)) {
    return absl::InvalidArgumentError(absl::StrCat("target ", options.target,
                                                   " does not run on this CPU (", features.model,
                                                   "); leave --target out to use the best it has"));
  }
  return target;
}

}  // namespace

std::string DefaultCacheDir(const std::string& flag) {
  if (!flag.empty()) return flag;
  if (const char* dir = std::getenv("CUVIL_CACHE_DIR"); dir != nullptr && *dir != 0) return dir;
  if (const char* dir = std::getenv("XDG_CACHE_HOME"); dir != nullptr && *dir != 0)
    return absl::StrCat(dir, "/cuvil");
  if (const char* dir = std::getenv("HOME"); dir != nullptr && *dir != 0)
    return absl::StrCat(dir, "/.cache/cuvil");
  return "";
}

absl::StatusOr<ir::Graph> StepGraphOf(const gguf::File& file, const gguf::ModelConfig& config) {
  ASSIGN_OR_RETURN(const gguf::ModelTensors tensors, gguf::BindTensors(file, config));
  const driver::CompileOptions defaults;
  return gguf::BuildGraph(config, tensors, {.rows_max = defaults.prefill_rows});
}

absl::StatusOr<Outline> ReadOutline(const std::string& path, const LoadOptions& options) {
  ASSIGN_OR_RETURN(const auto file, gguf::File::Open(path));
  ASSIGN_OR_RETURN(gguf::ModelConfig config, gguf::ReadConfig(*file));
  ASSIGN_OR_RETURN(const ir::Graph graph, StepGraphOf(*file, config));
  driver::CompileOptions compile{.numerics = options.numerics};
  ASSIGN_OR_RETURN(compile.target, TargetOf(options));
  ASSIGN_OR_RETURN(runtime::Program program, driver::PlanProgram(graph, compile));
  return Outline{std::move(config), std::move(program)};
}

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& path,
                                                         const LoadOptions& options) {
  const double start = Now();
  std::shared_ptr<Model> m(new Model());
  m->path_ = path;
  m->numerics_ = options.numerics;
  m->threads_ = options.threads > 0 ? options.threads : UsableCores();
  ASSIGN_OR_RETURN(m->target_, TargetOf(options));
  ASSIGN_OR_RETURN(m->file_, gguf::File::Open(path));
  ASSIGN_OR_RETURN(m->config_, gguf::ReadConfig(*m->file_));
  // Vocabulary and tokenizer take as long as the rest: build them beside the compiler.
  std::future<absl::StatusOr<std::shared_ptr<const text::Tokenizer>>> tokenizer =
      std::async(std::launch::async, [file = m->file_] { return ReadTokenizer(*file); });
  ASSIGN_OR_RETURN(const ir::Graph graph, StepGraphOf(*m->file_, m->config_));
  m->timing_.open_s = Now() - start;

  driver::CompileOptions compile{.target = m->target_,
                                 .numerics = options.numerics,
                                 .threads = m->threads_,
                                 .keep_ir = options.keep_ir,
                                 .serve_first = options.serve_first};
  std::unique_ptr<driver::ArtifactCache> cache;
  if (!options.cache_dir.empty()) {
    auto opened = driver::ArtifactCache::Open(options.cache_dir);
    if (opened.ok()) {
      cache = *std::move(opened);
      compile.cache = cache.get();
    } else {
      m->timing_.cache_note = std::string(opened.status().message());
    }
  }
  // Weights are packed while the code is verified and linked.
  compile.on_program = [&](const std::shared_ptr<const runtime::Program>& program) -> absl::Status {
    if (options.admit) {
      RETURN_IF_ERROR(options.admit(m->config_, *program, CodeBytes(*program)));
    }
    return m->StartWeights(*program);
  };
  const double compile_start = Now();
  ASSIGN_OR_RETURN(driver::Compiled compiled, driver::CompileStep(graph, compile));
  m->timing_.compile_s = Now() - compile_start;
  m->timing_.from_cache = compiled.from_cache;
  m->timing_.tier0 = compiled.rest != nullptr;
  if (!compiled.cache_note.empty()) m->timing_.cache_note = compiled.cache_note;
  m->program_ = compiled.program;
  ASSIGN_OR_RETURN(m->tokenizer_, tokenizer.get());
  // Last, so that the rest of the code takes no time from what the first answer needs.
  m->code_ =
      std::make_shared<const ModelCode>(std::move(compiled), std::move(cache), options.before_rest);
  return std::shared_ptr<const Model>(std::move(m));
}

absl::Status Model::StartWeights(const runtime::Program& program) {
  weights_.reset();
  runtime::WeightOptions options{.threads = threads_};
  if (file_->mapped() != nullptr) {
    options.release = [file = file_.get(),
                       used = std::make_shared<UsedPages>(file_->mapped(), TensorCount(program))](
                          std::string_view name) {
      const gguf::Tensor* t = file->FindTensor(name);
      if (t != nullptr) used->Add(t->offset, t->data.size());
    };
  }
  ASSIGN_OR_RETURN(weights_,
                   runtime::WeightStore::Start(program, SourceOf(*file_), std::move(options)));
  return absl::OkStatus();
}

struct SleepingModel {
  std::string path;
  std::shared_ptr<const gguf::File> file;
  gguf::ModelConfig config;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const runtime::Program> program;
  std::shared_ptr<const ModelCode> code;
  emit::Target target;
  plan::Numerics numerics;
  int threads;
};

std::shared_ptr<const SleepingModel> Model::Sleep() const {
  return std::make_shared<SleepingModel>(SleepingModel{path_, file_, config_, tokenizer_, program_,
                                                       code_, target_, numerics_, threads_});
}

absl::StatusOr<std::shared_ptr<const Model>> Model::Wake(
    std::shared_ptr<const SleepingModel> sleeping) {
  std::shared_ptr<Model> m(new Model());
  m->path_ = sleeping->path;
  m->file_ = sleeping->file;
  m->config_ = sleeping->config;
  m->tokenizer_ = sleeping->tokenizer;
  m->program_ = sleeping->program;
  m->code_ = sleeping->code;
  m->target_ = sleeping->target;
  m->numerics_ = sleeping->numerics;
  m->threads_ = sleeping->threads;
  m->timing_.from_cache = true;
  RETURN_IF_ERROR(m->StartWeights(*m->program_));
  return std::shared_ptr<const Model>(std::move(m));
}

}  // namespace cuvil::engine
