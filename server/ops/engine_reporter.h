// What the engine tells, turned into metrics, log lines and signs of life: the EngineObserver of a
// daemon. Holds a watchdog per model for steps that never end, and one over all models for work
// that waits while no step begins.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/api/observer.h"
#include "server/ops/log.h"
#include "server/ops/metrics.h"
#include "server/ops/watchdog.h"

namespace cuvil::ops {

class EngineReporter : public server::EngineObserver {
 public:
  using Time = Watchdog::Time;

  struct Options {
    std::vector<std::string> models;
    double watchdog_s = 60;     // 0: always alive
    std::function<Time()> now;  // empty: the steady clock
  };
  // Both outlive it.
  EngineReporter(const Options& options, Metrics* metrics, Logger* log);

  void OnStepBegin(const std::string& model) override;
  void OnStep(const std::string& model, const server::StepReport& step,
              const server::EngineTotals& totals) override;
  void OnInterToken(const std::string& model, double seconds) override;
  void OnRequestEnd(const std::string& model, server::FinishReason reason,
                    const server::Usage& usage, const server::Timings& timings) override;
  void OnModelState(const std::string& model, server::ModelState state,
                    const std::string& error) override;
  void OnWeightsSettled(const std::string& model) override;
  void OnLoadPhase(const std::string& model, const std::string& phase, double seconds) override;
  void OnCompileFailed(const std::string& model, const std::string& error) override;

  // The daemon's timer, about once a second: `steps` and `busy` are the pool's. False while steps
  // make no progress, other than by waiting for weights that still land; each stall is logged and
  // counted once, and so is its end.
  bool CheckAlive(int64_t steps, bool busy);
  // The line every few seconds: nothing when no step ran since the last. `load` is over all models.
  void LogStats(const server::Load& load);

 private:
  struct Dog {
    std::string model;
    Watchdog watchdog;
    bool was_alive = true;  // the timer's
    std::atomic<bool> weights_land = false;
  };
  Dog* DogOf(const std::string& model);
  bool CheckDog(Dog* dog, Time now);

  Metrics* const metrics_;
  Logger* const log_;
  const std::function<Time()> now_;
  absl::flat_hash_map<std::string, std::unique_ptr<Dog>> dogs_;  // fixed
  Dog all_;
  std::atomic<int64_t> decoded_{0}, prefilled_{0}, steps_{0};  // tokens and steps since LogStats
  Time stats_at_;                                              // the timer's
};

}  // namespace cuvil::ops
