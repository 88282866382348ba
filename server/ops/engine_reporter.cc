#include "server/ops/engine_reporter.h"

#include <algorithm>

namespace cuvil::ops {
namespace {

std::chrono::nanoseconds Nanos(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

EngineReporter::EngineReporter(const Options& options, Metrics* metrics, Logger* log)
    : metrics_(metrics),
      log_(log),
      now_(options.now ? options.now : [] { return std::chrono::steady_clock::now(); }),
      all_{"other", Watchdog(Nanos(options.watchdog_s))},
      stats_at_(now_()) {
  for (const std::string& model : options.models) {
    dogs_.try_emplace(model, new Dog{model, Watchdog(Nanos(options.watchdog_s))});
  }
}

EngineReporter::Dog* EngineReporter::DogOf(const std::string& model) {
  const auto found = dogs_.find(model);
  return found == dogs_.end() ? nullptr : found->second.get();
}

void EngineReporter::OnStepBegin(const std::string& model) {
  if (Dog* dog = DogOf(model)) dog->watchdog.StepBegin(now_());
}

void EngineReporter::OnStep(const std::string& model, const server::StepReport& step,
                            const server::EngineTotals& totals) {
  // Whether work waits after a step changes without a step (a client leaves), so the pool's view
  // decides that, in CheckAlive.
  if (Dog* dog = DogOf(model)) dog->watchdog.StepEnd(now_(), false);
  metrics_->Model(model).Step(step, totals);
  decoded_.fetch_add(step.decode_rows, std::memory_order_relaxed);
  prefilled_.fetch_add(step.prefill_rows, std::memory_order_relaxed);
  steps_.fetch_add(1, std::memory_order_relaxed);
}

void EngineReporter::OnInterToken(const std::string& model, double seconds) {
  metrics_->Model(model).InterToken(seconds);
}

void EngineReporter::OnRequestEnd(const std::string& model, server::FinishReason reason,
                                  const server::Usage& usage, const server::Timings& timings) {
  metrics_->Model(model).RequestEnd(reason, usage, timings);
}

void EngineReporter::OnModelState(const std::string& model, server::ModelState state,
                                  const std::string& error) {
  // A model that could not be woken sleeps on: only the error tells.
  const bool failed = state == server::ModelState::kFailed || !error.empty();
  metrics_->Model(model).SetState(state, failed);
  const Field fields[] = {
      {Key::kModel, model}, {Key::kState, server::StateName(state)}, {Key::kDetail, error}};
  log_->Write(failed ? Level::kError : Level::kInfo, Event::kModel, fields);
  Dog* const dog = DogOf(model);
  if (dog == nullptr) return;
  dog->weights_land = state == server::ModelState::kReady;
  // A step that was cut short by an unload will not end.
  const bool gone =
      failed || state == server::ModelState::kUnloaded || state == server::ModelState::kSleeping;
  if (gone) dog->watchdog.StepEnd(now_(), false);
}

void EngineReporter::OnWeightsSettled(const std::string& model) {
  Dog* const dog = DogOf(model);
  if (dog == nullptr) return;
  // The step that waited for them has the whole limit from here on.
  dog->watchdog.Progress(now_());
  dog->weights_land = false;
}

void EngineReporter::OnLoadPhase(const std::string& model, const std::string& phase,
                                 double seconds) {
  metrics_->Model(model).LoadPhase(phase, seconds);
  log_->Info(Event::kLoad, {{Key::kModel, model}, {Key::kPhase, phase}, {Key::kSeconds, seconds}});
}

void EngineReporter::OnCompileFailed(const std::string& model, const std::string& error) {
  log_->Error(Event::kLoad,
              {{Key::kModel, model}, {Key::kPhase, "compile"}, {Key::kDetail, error}});
}

bool EngineReporter::CheckDog(Dog* dog, Time now) {
  const int64_t trips = dog->watchdog.trips();
  const double stalled_s = Seconds(dog->watchdog.Stalled(now));
  const bool alive = dog->watchdog.Alive(now);
  if (dog->watchdog.trips() > trips) {
    metrics_->Model(dog->model).WatchdogTrip();
    log_->Error(Event::kWatchdog, {{Key::kModel, dog->model},
                                   {Key::kState, "stalled"},
                                   {Key::kSeconds, stalled_s},
                                   {Key::kDetail, "work waits and no step gets through"}});
  } else if (alive && !dog->was_alive) {
    log_->Warn(Event::kWatchdog, {{Key::kModel, dog->model}, {Key::kState, "recovered"}});
  }
  dog->was_alive = alive;
  return alive;
}

bool EngineReporter::CheckAlive(int64_t steps, bool busy) {
  const Time now = now_();
  bool alive = true, weights_land = false;
  for (auto& [model, dog] : dogs_) {
    if (dog->weights_land) {
      weights_land = true;
      dog->watchdog.Progress(now);
    }
    alive = CheckDog(dog.get(), now) && alive;
  }
  all_.watchdog.Poll(now, steps, busy);
  if (weights_land) all_.watchdog.Progress(now);
  // A model that is stuck in a step has been blamed by name already.
  if (!alive) return false;
  return CheckDog(&all_, now);
}

void EngineReporter::LogStats(const server::Load& load) {
  const Time now = now_();
  const double seconds = std::max(Seconds(now - stats_at_), 1e-3);
  stats_at_ = now;
  const int64_t decoded = decoded_.exchange(0), prefilled = prefilled_.exchange(0);
  if (steps_.exchange(0) == 0) return;
  const double usage = load.pages_total > 0 ? static_cast<double>(load.pages_used) /
                                                  static_cast<double>(load.pages_total)
                                            : 0;
  log_->Info(Event::kStats, {{Key::kRunning, load.running},
                             {Key::kWaiting, load.waiting},
                             {Key::kKvUsage, usage},
                             {Key::kTokensPerS, static_cast<double>(decoded) / seconds},
                             {Key::kPromptTokens, prefilled},
                             {Key::kGeneratedTokens, decoded},
                             {Key::kSeconds, seconds}});
}

}  // namespace cuvil::ops
