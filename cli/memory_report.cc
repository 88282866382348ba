#include "cli/memory_report.h"

#include <fstream>
#include <string>

#include "engine/model.h"
#include "server/ops/machine_limits.h"

namespace cuvil::cli {
namespace {

// Resident bytes of this process now.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

}  // namespace

int64_t MemoryReport::total() const {
  int64_t sum = process;
  for (const Row& row : models) sum += row.plan.total();
  return sum;
}

absl::StatusOr<MemoryReport> PlanDaemon(const server::DaemonOptions& options) {
  ASSIGN_OR_RETURN(const server::Sized sized, server::SizeDaemon(options));
  MemoryReport report{
      .process = ResidentBytes(), .limit = sized.pool.memory_limit, .sizing = sized.sentence};
  int64_t preloaded = 0;
  for (const server::ModelSpec& spec : sized.pool.models) {
    MemoryReport::Row row{.name = spec.name};
    engine::LoadOptions load{.numerics = spec.numerics,
                             .target = spec.target,
                             .threads = sized.pool.threads,
                             .cache_dir = sized.pool.cache_dir};
    load.admit = [&](const gguf::ModelConfig& config, const runtime::Program& program,
                     int64_t code_bytes) {
      row.plan = server::PlanMemory(program, {.context = config.context_length,
                                              .vocab_size = config.vocab_size,
                                              .embedding_size = config.n_embd,
                                              .code_bytes = code_bytes,
                                              .workers = sized.pool.threads,
                                              .sequences_max = sized.pool.sequences_max,
                                              .kv_tokens = spec.kv_tokens,
                                              .limit = sized.pool.memory_limit});
      row.kv_tokens = row.plan.pages * program.states[0].page_tokens;
      return absl::CancelledError("planned");  // nothing is packed
    };
    const absl::Status status = engine::Model::Load(spec.path, load).status();
    if (!absl::IsCancelled(status)) return status;
    if (spec.preload) preloaded += row.plan.total();
    report.models.push_back(std::move(row));
  }
  report.fits = report.limit == 0 || preloaded <= report.limit;
  return report;
}

std::string ReportTable(const MemoryReport& report) {
  using ops::BytesText;
  std::string text = absl::StrFormat("%-28s %11s %11s %11s %11s %11s %10s\n", "model", "weights",
                                     "kv", "workspace", "code", "total", "kv tokens");
  for (const MemoryReport::Row& r : report.models) {
    absl::StrAppendFormat(&text, "%-28s %11s %11s %11s %11s %11s %10d\n", r.name,
                          BytesText(r.plan.weights), BytesText(r.plan.kv),
                          BytesText(r.plan.workspace), BytesText(r.plan.code),
                          BytesText(r.plan.total()), r.kv_tokens);
  }
  absl::StrAppendFormat(&text, "%-28s %59s\n", "process", BytesText(report.process));
  absl::StrAppendFormat(&text, "%-28s %59s\n", "all", BytesText(report.total()));
  absl::StrAppend(&text, report.sizing, "\n");
  if (!report.fits) {
    absl::StrAppend(&text, "The models that load at start need more than the limit of ",
                    BytesText(report.limit), ": lower kv_tokens, or load some on request.\n");
  }
  return text;
}

Json ReportJson(const MemoryReport& report) {
  Json json = {{"process", report.process},
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
                              {"total", r.plan.total()}});
  }
  return json;
}

}  // namespace cuvil::cli
