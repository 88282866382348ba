#include "cli/memory_report.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "compiler/driver/cache.h"
#include "compiler/driver/compile.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/file.h"
#include "compiler/import/gguf/vocab.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "server/ops/machine_limits.h"

namespace cuvil::cli {
namespace {

// What a serving process touches beyond one that only plans: code of the doors, stacks and heaps
// of their threads, inputs of a step, the index of prefixes. Measured as what is resident of a
// server of the smallest model (bench/memory_plan.py shows the parts), less its plan.
constexpr int64_t kServingBytes = int64_t{8} << 20;

// A line of /proc/self/status, in bytes: "VmRSS", "RssAnon".
int64_t StatusBytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  const std::string wanted = absl::StrCat(Sv(key), ":");
  std::string name;
  while (status >> name) {
    int64_t kilobytes = 0;
    if (name == wanted && status >> kilobytes) return kilobytes * 1024;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// A model's row, and what planning it showed besides.
struct Planned {
  MemoryReport::Row row;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const runtime::Program> program;
  server::MemoryRequest request;
  int64_t compiler = 0;  // resident because of compiling; 0 when the cache had everything
};

// Reads it as a server would, and looks at the growth; freed memory that is used again is none.
absl::Status MeasureTokenizer(const gguf::File& file, Planned* planned) {
  const int64_t before = StatusBytes("RssAnon");
  ASSIGN_OR_RETURN(text::VocabSpec vocab, gguf::ReadVocab(file));
  ASSIGN_OR_RETURN(planned->tokenizer, text::Tokenizer::Create(std::move(vocab)));
  planned->row.tokenizer = std::max<int64_t>(0, StatusBytes("RssAnon") - before);
  return absl::OkStatus();
}

// Everything but the row's plan, which depends on the other models.
absl::StatusOr<Planned> ReadModel(const server::ModelSpec& spec, const server::PoolOptions& pool,
                                  int64_t sequence_tokens, driver::ArtifactCache* cache) {
  Planned planned{.row = {.name = spec.name}};
  ASSIGN_OR_RETURN(const auto file, gguf::File::Open(spec.path));
  ASSIGN_OR_RETURN(const gguf::ModelConfig config, gguf::ReadConfig(*file));
  if (sequence_tokens > config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("--sequence-tokens is ", sequence_tokens,
                                                   " and the context of model '", spec.name,
                                                   "' is ", config.context_length, "; pass less"));
  }
  RETURN_IF_ERROR(MeasureTokenizer(*file, &planned));
  ASSIGN_OR_RETURN(const ir::Graph graph, engine::StepGraphOf(*file, config));
  const int64_t before = StatusBytes("VmRSS");
  driver::CompileOptions compile{
      .numerics = spec.numerics, .threads = pool.threads, .cache = cache};
  ASSIGN_OR_RETURN(compile.target, spec.target.empty() ? emit::BestTarget(AcquireCpuFeatures())
                                                       : emit::FindTarget(spec.target));
  ASSIGN_OR_RETURN(const driver::Compiled compiled, driver::CompileStep(graph, compile));
  // The other program a server needs, so that the next start finds both in the cache.
  ASSIGN_OR_RETURN(const auto sampler, engine::Sampler::Create({.vocab_size = config.vocab_size,
                                                                .target = compile.target,
                                                                .threads = pool.threads,
                                                                .cache_dir = pool.cache_dir}));
  if (!compiled.from_cache || sampler->kernels_emitted() > 0)
    planned.compiler = std::max<int64_t>(0, StatusBytes("VmRSS") - before);
  RETURN_IF_ERROR(engine::CheckTrim({spec.trim.max_kv_len, spec.trim.sinks}, config,
                                    compiled.program->states[0].page_tokens));
  planned.program = compiled.program;
  planned.request = server::MemoryRequestOf(config, pool.threads,
                                            static_cast<int64_t>(compiled.code->code_bytes()),
                                            server::HostOptionsOf(pool, spec));
  planned.request.sequence_tokens = sequence_tokens;
  return planned;
}

// As ModelPool does: models that load at start divide the limit, the others have what those leave.
void PlanModels(const server::PoolOptions& pool, std::vector<Planned>* models) {
  std::vector<server::MemoryNeed> needs;
  for (size_t i = 0; i < models->size(); ++i) {
    const Planned& m = (*models)[i];
    if (pool.models[i].preload) needs.push_back({m.program.get(), m.request});
  }
  const std::vector<int64_t> parts = server::DivideLimit(pool.memory_limit, needs);
  int64_t left = pool.memory_limit;
  const auto plan = [](int64_t limit, Planned* m) {
    m->request.limit = limit;
    m->row.plan = server::PlanMemory(*m->program, m->request);
    m->row.kv_tokens = m->row.plan.pages * m->program->states[0].page_tokens;
    return m->row.plan.total();
  };
  for (size_t i = 0, k = 0; i < models->size(); ++i) {
    if (pool.models[i].preload) left -= plan(parts[k++], &(*models)[i]);
  }
  for (size_t i = 0; i < models->size(); ++i) {
    if (pool.models[i].preload) continue;
    plan(pool.memory_limit > 0 ? std::max<int64_t>(1, left) : 0, &(*models)[i]);
  }
}

std::string SequenceText(const MemoryReport::Row& r) {
  using ops::BytesText;
  const server::SequencePlan& s = r.plan.sequence;
  std::string text = absl::StrCat("One sequence of ", s.tokens, " tokens of ", r.name,
                                  " holds at most ", BytesText(s.kv()), " of its kv");
  if (s.pages < s.pages_untrimmed)
    absl::StrAppend(&text, "; untrimmed ", BytesText(s.kv_untrimmed()));
  return absl::StrCat(text, ".\n");
}

Json SequenceJson(const server::SequencePlan& s) {
  return {{"tokens", s.tokens},
          {"pages", s.pages},
          {"pages_untrimmed", s.pages_untrimmed},
          {"kv", s.kv()},
          {"kv_untrimmed", s.kv_untrimmed()}};
}

}  // namespace

int64_t MemoryReport::total() const {
  int64_t sum = process + (kernels_are_kept ? 0 : compiler);
  for (const Row& row : models) sum += row.total();
  return sum;
}

absl::StatusOr<MemoryReport> PlanDaemon(const server::DaemonOptions& options,
                                        int64_t sequence_tokens) {
  ASSIGN_OR_RETURN(const server::Sized sized, server::SizeDaemon(options));
  std::unique_ptr<driver::ArtifactCache> cache;
  if (!sized.pool.cache_dir.empty()) {
    auto opened = driver::ArtifactCache::Open(sized.pool.cache_dir);
    if (opened.ok()) cache = *std::move(opened);
  }
  MemoryReport report{.process = StatusBytes("VmRSS") + kServingBytes,
                      .limit = sized.pool.memory_limit,
                      .sizing = sized.sentence,
                      .kernels_are_kept = cache != nullptr};
  std::vector<Planned> models;  // keeps tokenizers alive, as the server does
  for (const server::ModelSpec& spec : sized.pool.models) {
    ASSIGN_OR_RETURN(models.emplace_back(),
                     ReadModel(spec, sized.pool, sequence_tokens, cache.get()));
  }
  PlanModels(sized.pool, &models);
  int64_t preloaded = 0;
  for (size_t i = 0; i < models.size(); ++i) {
    report.compiler += models[i].compiler;
    if (sized.pool.models[i].preload) preloaded += models[i].row.plan.total();
    report.models.push_back(std::move(models[i].row));
  }
  report.fits = report.limit == 0 || preloaded <= report.limit;
  return report;
}

std::string ReportTable(const MemoryReport& report) {
  using ops::BytesText;
  std::string text =
      absl::StrFormat("%-28s %11s %11s %11s %11s %11s %11s %10s\n", "model", "weights", "kv",
                      "workspace", "code", "tokenizer", "total", "kv tokens");
  for (const MemoryReport::Row& r : report.models) {
    absl::StrAppendFormat(&text, "%-28s %11s %11s %11s %11s %11s %11s %10d\n", r.name,
                          BytesText(r.plan.weights), BytesText(r.plan.kv),
                          BytesText(r.plan.workspace), BytesText(r.plan.code),
                          BytesText(r.tokenizer), BytesText(r.total()), r.kv_tokens);
  }
  absl::StrAppendFormat(&text, "%-28s %71s\n", "process", BytesText(report.process));
  if (!report.kernels_are_kept)
    absl::StrAppendFormat(&text, "%-28s %71s\n", "compiler", BytesText(report.compiler));
  absl::StrAppendFormat(&text, "%-28s %71s\n", "all", BytesText(report.total()));
  if (report.kernels_are_kept && report.compiler > 0) {
    absl::StrAppend(&text, "A start that has to compile takes ", BytesText(report.compiler),
                    " more; now the kernels are in the cache.\n");
  }
  for (const MemoryReport::Row& r : report.models) absl::StrAppend(&text, SequenceText(r));
  absl::StrAppend(&text, report.sizing, "\n");
  if (!report.fits) {
    absl::StrAppend(&text, "The models that load at start need more than the limit of ",
                    BytesText(report.limit), ": lower kv_tokens, or load some on request.\n");
  }
  return text;
}

Json ReportJson(const MemoryReport& report) {
  Json json = {{"process", report.process},
               {"compiler", report.compiler},
               {"kernels_are_kept", report.kernels_are_kept},
               {"limit", report.limit},
               {"total", report.total()},
               {"fits", report.fits},
               {"models", Json::array()}};
  for (const MemoryReport::Row& r : report.models) {
    json["models"].push_back({{"name", r.name},
                              {"weights", r.plan.weights},
                              {"kv", r.plan.kv},
                              {"kv_tokens", r.kv_tokens},
                              {"workspace", r.plan.workspace},
                              {"code", r.plan.code},
                              {"tokenizer", r.tokenizer},
                              {"total", r.total()},
                              {"sequence", SequenceJson(r.plan.sequence)}});
  }
  return json;
}

}  // namespace cuvil::cli
