// ModelPool: the models of one server by name, under one memory budget; the Backend that doors see.
// One loader thread does everything slow, one job after another: load, unload, sleep, wake.
//
//   unloaded -> loading -> ready <-> sleeping;  loading -> failed;  any -> unloading -> unloaded
//
// A model that is asked for by a request and is not there begins to load (with lazy loading on).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/model.h"
#include "server/api/backend.h"
#include "server/api/observer.h"
#include "server/engine/model_host.h"

namespace cuvil::server {

struct ModelSpec {
  std::string name;  // what requests say
  std::string path;
  bool preload = true;
  plan::Numerics numerics = plan::Numerics::kFast;
  std::string target;     // empty: the best this CPU has
  int64_t kv_tokens = 0;  // 0: memory_plan.h's choice
  TrimOptions trim;
};

struct PoolOptions {
  std::vector<ModelSpec> models;  // the first is the default one
  int threads = 0;                // per model; 0: UsableCores()
  int64_t memory_limit = 0;       // bytes for all models; 0: none
  bool lazy_load = true;
  std::string cache_dir;
  int sequences_max = 64;
  int64_t queue_requests_max = 512;
  int64_t queue_tokens_max = int64_t{1} << 20;
  int64_t itl_target_us = 25'000;
  int64_t deadline_ms_max = 0;
  bool prefix_cache = true;
  std::map<std::string, double> tenant_weights;  // shares under load; 1 where absent
  bool pin = false;
};

// Of the host that serves `spec`, but for its part of a memory limit.
HostOptions HostOptionsOf(const PoolOptions& pool, const ModelSpec& spec);

class ModelPool : public Backend {
 public:
  // InvalidArgument for no model, or two of one name. Loads begin with Start.
  static absl::StatusOr<std::unique_ptr<ModelPool>> Create(PoolOptions options,
                                                           EngineObserver* observer);
  ~ModelPool() override;

  // Queues the loads of every model that wants it.
  void Start();
  // No new requests; running ones go on. Then idle() tells when all have ended.
  void BeginDrain();
  bool idle() const;
  // Ends what still runs, as Unavailable.
  void Stop();

  std::vector<ModelInfo> Models() const override;
  absl::StatusOr<std::shared_ptr<const ServedModel>> Find(std::string_view name) override;
  absl::StatusOr<uint64_t> Submit(GenerateRequest request,
                                  std::shared_ptr<AnswerSink> sink) override;
  void Abort(uint64_t handle) override;
  absl::Status CheckRoom(int64_t deadline_ms) const override;
  absl::StatusOr<Load> GetLoad(std::string_view model) const override;
  absl::Status LoadModel(std::string_view name) override;
  absl::Status UnloadModel(std::string_view name) override;
  absl::Status Sleep(std::string_view name) override;
  absl::Status Wake(std::string_view name) override;
  bool started() const override;
  bool ready() const override;
  bool alive() const override;
  bool draining() const override { return draining_.load(); }

  // What each model takes: nothing where it is not loaded.
  std::map<std::string, MemoryPlan> memory() const;
  // Steps of all models so far, and whether any has work: what a watchdog watches.
  int64_t steps() const;
  bool busy() const;
  // Told by the watchdog; alive() says so.
  void SetAlive(bool alive) { alive_.store(alive); }

 private:
  struct Entry;
  struct Job {
    enum class Kind : uint8_t { kLoad, kUnload, kSleep, kWake } kind;
    Entry* entry;
  };

  ModelPool(PoolOptions options, EngineObserver* observer);
  void LoaderLoop();
  void Run(const Job& job);
  void LoadNow(Entry* entry);
  void WakeNow(Entry* entry);
  void DropNow(Entry* entry, bool sleep);
  absl::Status StartHost(Entry* entry, std::shared_ptr<const engine::Model> model, double begin_s);
  // Of the memory limit, what a model's plan may use: 0 without a limit.
  int64_t LimitOf(Entry* entry);
  void DivideLimitAmongPreloaded();
  engine::LoadOptions LoadOptionsOf(const Entry& entry) const;
  int Workers() const;
  // Room for `bytes` more, putting idle models to rest if need be.
  absl::Status MakeRoom(Entry* entry, int64_t bytes);
  void SetState(Entry* entry, ModelState state, const std::string& error = "");
  // REQUIRES for these: mutex_ is held.
  absl::StatusOr<Entry*> FindEntry(std::string_view name) const;
  void QueueLocked(Entry* entry, Job::Kind kind);
  static absl::Status NotWoken(const Entry& entry);
  static absl::Status BeingLoaded(const Entry& entry);
  absl::Status Queue(std::string_view name, Job::Kind kind);

  const PoolOptions options_;
  EngineObserver* const observer_;
  std::vector<std::unique_ptr<Entry>> entries_;  // fixed after Create

  // Guards jobs_, stop_ and what entries say of themselves. Not absl::Mutex: the thread sanitizer
  // does not see into Debian's.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::atomic<bool> draining_{false}, alive_{true};
  std::atomic<uint64_t> next_handle_{1};
  bool limit_divided_ = false;  // the loader thread's
  std::thread loader_;
};

}  // namespace cuvil::server
