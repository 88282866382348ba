// What the engine tells of its work, for metrics and the watchdog. Called on a model's step thread
// (loading: on its loader's): implementations only count.
#pragma once

#include <cstdint>
#include <string>

#include "server/api/backend.h"
#include "server/api/request.h"

namespace cuvil::server {

struct StepReport {
  int64_t rows = 0, decode_rows = 0, prefill_rows = 0;
  int64_t sequences = 0;  // that took part
  double step_s = 0;      // rows and sampling
  Load load;
};

// Totals since the model was loaded.
struct EngineTotals {
  int64_t prefix_lookup_tokens = 0, prefix_hit_tokens = 0;
  int64_t evicted_pages = 0, trimmed_pages = 0;
  int64_t preemptions = 0, steps_failed = 0;
};

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  // A step begins with work in hand, and has ended: the watchdog's view.
  virtual void OnStepBegin(const std::string& model) {}
  virtual void OnStep(const std::string& model, const StepReport& step,
                      const EngineTotals& totals) {}
  // The time between two tokens of one choice.
  virtual void OnInterToken(const std::string& model, double seconds) {}
  // Every accepted request, once; `reason` of its first choice.
  virtual void OnRequestEnd(const std::string& model, FinishReason reason, const Usage& usage,
                            const Timings& timings) {}
  // `error`: of a load that failed (kFailed), or of a wake-up (kSleeping, as before it).
  virtual void OnModelState(const std::string& model, ModelState state, const std::string& error) {}
  // A model that became ready has all its weights now, or never will; steps before may have waited
  // for them.
  virtual void OnWeightsSettled(const std::string& model) {}
  // A phase of a load: "open", "compile", "host", "total" (weights landed). When the kernels were
  // not in the cache, "tier0" comes instead of "compile": the compilation until the model could
  // answer. Once the rest is there, "compile" is the whole of it, and "swap" the time from the
  // start of the load until steps had every plan.
  virtual void OnLoadPhase(const std::string& model, const std::string& phase, double seconds) {}
  // The rest of the kernels could not be compiled; the model goes on answering, more slowly.
  virtual void OnCompileFailed(const std::string& model, const std::string& error) {}
};

}  // namespace cuvil::server
