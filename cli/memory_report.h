// What the daemon would take in memory, model by model, before it takes any.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "server/daemon/daemon.h"
#include "server/engine/memory_plan.h"

namespace cuvil::cli {

struct MemoryReport {
  struct Row {
    std::string name;
    server::MemoryPlan plan;
    int64_t kv_tokens = 0;
    int64_t tokenizer = 0;  // its tables, and what reading them leaves in the heap
    int64_t total() const { return plan.total() + tokenizer; }
  };
  std::vector<Row> models;
  int64_t process = 0;   // without any model: libraries, heap, stacks, doors
  int64_t compiler = 0;  // more that a start takes which compiles; part of the total only when
                         // kernels cannot be kept, so that every start is one
  int64_t limit = 0;     // of weights, pages, workspace and code; 0: none
  std::string sizing;
  bool kernels_are_kept = true;  // there is a cache folder, and it can be written
  int64_t total() const;
  bool fits = true;  // models that load at start fit the limit together
};

// Compiles each model (or finds it in the cache), packs nothing. Errors of a model's file;
// InvalidArgument for a trim policy that a model cannot bear. The pages of one sequence are given
// for `sequence_tokens` positions, which every model's context must hold; 0: a full context.
absl::StatusOr<MemoryReport> PlanDaemon(const server::DaemonOptions& options,
                                        int64_t sequence_tokens = 0);

std::string ReportTable(const MemoryReport& report);
Json ReportJson(const MemoryReport& report);

}  // namespace cuvil::cli
