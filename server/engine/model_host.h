// ModelHost: one loaded model at work. Its step thread owns the scheduler, the page bookkeeping,
// the step runner and every Answer; other threads leave submissions and aborts in a bounded inbox.
//
//   Submit -> inbox -> Scheduler -> (Plan, Commit, step, sample, Apply)* -> last event
//
// Every accepted request gets exactly one last event, also when the host is stopped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "engine/step_runner.h"
#include "scheduler/scheduler.h"
#include "server/api/backend.h"
#include "server/api/observer.h"
#include "server/engine/answer.h"
#include "server/engine/memory_plan.h"

namespace cuvil::server {

struct HostOptions {
  std::string name;       // served name
  int64_t kv_tokens = 0;  // of the page pool; 0: what memory_plan.h chooses
  int sequences_max = 64;
  int64_t queue_requests_max = 512;
  int64_t queue_tokens_max = int64_t{1} << 20;
  int64_t itl_target_us = 25'000;
  bool prefix_cache = true;
  TrimOptions trim;             // of requests that do not say
  int64_t deadline_ms_max = 0;  // of every request; 0: none
  int64_t memory_limit = 0;     // bytes for all of it; 0: none. Bounds the default pool only
  std::string cache_dir;        // for the sampling program
  std::map<std::string, double> tenant_weights;  // shares under load; 1 where absent
  bool pin = false;
};

// What the memory of a host with these options is planned from: asked before a load, by the host
// itself, and by `serve --plan`.
MemoryRequest MemoryRequestOf(const gguf::ModelConfig& config, int workers, int64_t code_bytes,
                              const HostOptions& options);

class ModelHost {
 public:
  // Maps memory and starts the step thread. Errors of StepRunner and Sampler; InvalidArgument for
  // options out of range and for a trim policy that the model cannot bear. `observer` may be null
  // and outlives the host.
  static absl::StatusOr<std::unique_ptr<ModelHost>> Start(
      std::shared_ptr<const engine::Model> model, const HostOptions& options,
      EngineObserver* observer);
  // Stops at the next step; what is left ends as Unavailable.
  ~ModelHost();
  ModelHost(const ModelHost&) = delete;
  ModelHost& operator=(const ModelHost&) = delete;

  // As Backend::Submit; `handle` is the caller's choice, unique. Any thread.
  absl::Status Submit(uint64_t handle, GenerateRequest request, std::shared_ptr<AnswerSink> sink);
  void Abort(uint64_t handle);
  // What Submit would say of the least request with this deadline (0: none). Any thread.
  absl::Status CheckRoom(int64_t deadline_ms) const;
  // From now on Submit is refused; what was accepted runs on.
  void BeginDrain();
  // No request is left. Any thread.
  bool idle() const { return live_.load() == 0; }
  Load load() const;
  const engine::Model& model() const { return *model_; }
  std::shared_ptr<const engine::Model> shared_model() const { return model_; }
  const MemoryPlan& memory() const { return memory_; }
  int64_t steps() const { return steps_.load(); }  // so far: the watchdog's view

 private:
  struct Submission {
    uint64_t handle;
    GenerateRequest request;
    std::shared_ptr<AnswerSink> sink;
    int64_t at_us;
  };
  struct Ask {  // what the queue needs to know of a request
    int64_t sequences, prompt_tokens;
    int64_t max_tokens;   // below 0: as many as fit
    int64_t deadline_ms;  // 0: none
  };
  struct Place {  // of a sequence: its answer and choice
    Answer* answer;
    int choice;
  };
  struct Sampled {  // a token of the running step, not yet part of its answer
    Place place;
    engine::SampledToken token;
    scheduler::WorkResult* result;
  };

  ModelHost(std::shared_ptr<const engine::Model> model, const HostOptions& options,
            EngineObserver* observer);
  absl::Status Validate(const GenerateRequest& request) const;
  absl::Status CheckRoomLocked(const Ask& ask) const;
  int64_t DeadlineMs(int64_t asked) const;
  void Loop();
  bool TakeInbox();  // false: stop
  void Begin(Submission submission);
  void AbortNow(uint64_t handle);
  void StepOnce();
  scheduler::StepResult Run(const scheduler::StepPlan& plan);
  absl::Status RunRows(const scheduler::StepPlan& plan, scheduler::StepResult& result);
  absl::Status RunAllRows(const scheduler::Work& work, scheduler::WorkResult& result);
  void SampleRows(const std::vector<const scheduler::Work*>& works, const std::vector<float*>& rows,
                  const std::vector<scheduler::WorkResult*>& results);
  void TakeSampled();
  engine::StepRows RowsOf(const scheduler::Work& work) const;
  void Finish(const std::vector<scheduler::Ended>& ended);
  void Retire(Answer* answer);
  void Publish();

  const std::shared_ptr<const engine::Model> model_;
  const HostOptions options_;
  EngineObserver* const observer_;
  MemoryPlan memory_;
  std::vector<int32_t> end_tokens_;

  // The step thread's.
  std::unique_ptr<engine::StepRunner> runner_;
  std::unique_ptr<engine::Sampler> sampler_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Answer>> answers_;
  absl::flat_hash_map<int64_t, Place> places_;  // by sequence id
  std::vector<Sampled> sampled_;                // of the running step
  int64_t taken_sequences_ = 0, taken_tokens_ = 0,
          taken_rows_ = 0;  // from the inbox, not published yet
  bool idle_plan_ = true;   // the last plan had nothing to run, and nothing has changed since

  // Guards what follows, to live_. Not absl::Mutex: the thread sanitizer does not see into
  // Debian's.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Submission> inbox_;
  std::vector<uint64_t> aborts_;
  bool stop_ = false;
  bool draining_ = false;
  int64_t inbox_sequences_ = 0, inbox_tokens_ = 0;
  Load load_;
  int64_t waiting_tokens_ = 0, waiting_rows_ = 0, inbox_rows_ = 0;
  scheduler::ServiceTime service_time_;

  std::atomic<int64_t> live_{0}, steps_{0};
  std::thread thread_;
};

}  // namespace cuvil::server
