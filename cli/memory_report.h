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
  };
  std::vector<Row> models;
  int64_t process = 0;  // this program before any model: libraries, heap, stacks
  int64_t limit = 0;    // of weights, pages, workspace and code; 0: none
  std::string sizing;
  int64_t total() const;
  bool fits = true;  // models that load at start fit the limit together
};

// Compiles each model (or finds it in the cache), packs nothing. Errors of a model's file.
absl::StatusOr<MemoryReport> PlanDaemon(const server::DaemonOptions& options);

std::string ReportTable(const MemoryReport& report);
Json ReportJson(const MemoryReport& report);

}  // namespace cuvil::cli
