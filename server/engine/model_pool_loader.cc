// ModelPool: the loader thread, which does everything slow, one job after another.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/hash.h"
#include "server/engine/load_report.h"
#include "server/engine/model_pool_entry.h"

namespace cuvil::server {
namespace {

// Model and file: a door caches by it, and it changes when the file does.
std::string DigestOf(const std::string& path) {
  struct stat st = {};
  if (stat(path.c_str(), &st) != 0) return "";
  return Sha256Hex(absl::StrCat(st.st_dev, ":", st.st_ino, ":", st.st_size, ":", st.st_mtim.tv_sec,
                                ".", st.st_mtim.tv_nsec));
}

}  // namespace

void ModelPool::LoaderLoop() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    Run(job);
  }
}

void ModelPool::Run(const Job& job) {
  switch (job.kind) {
    case Job::Kind::kLoad:
      return LoadNow(job.entry);
    case Job::Kind::kWake:
      return WakeNow(job.entry);
    case Job::Kind::kUnload:
      return DropNow(job.entry, /*sleep=*/false);
    case Job::Kind::kSleep:
      return DropNow(job.entry, /*sleep=*/true);
  }
}

void ModelPool::SetState(Entry* entry, ModelState state, const std::string& error) {
  {
    std::lock_guard lock(mutex_);
    entry->info.state = state;
    entry->info.error = error;
    entry->info.load_fraction = state == ModelState::kReady ? 1 : 0;
    if (entry->host == nullptr) entry->info.memory_bytes = 0;
    if (state == ModelState::kReady || state == ModelState::kFailed) entry->settled = true;
    if (state != ModelState::kLoading) entry->queued = false;
  }
  if (observer_ != nullptr) observer_->OnModelState(entry->spec.name, state, error);
}

HostOptions HostOptionsOf(const PoolOptions& pool, const ModelSpec& spec) {
  return {.name = spec.name,
          .kv_tokens = spec.kv_tokens,
          .sequences_max = pool.sequences_max,
          .queue_requests_max = pool.queue_requests_max,
          .queue_tokens_max = pool.queue_tokens_max,
          .itl_target_us = pool.itl_target_us,
          .prefix_cache = pool.prefix_cache,
          .trim = spec.trim,
          .deadline_ms_max = pool.deadline_ms_max,
          .memory_limit = pool.memory_limit,
          .cache_dir = pool.cache_dir,
          .tenant_weights = pool.tenant_weights,
          .pin = pool.pin};
}

// Models that load at start are there together, so each has a part that does not depend on who
// comes first. One that comes on request has what they leave.
int64_t ModelPool::LimitOf(Entry* entry) {
  if (options_.memory_limit <= 0) return 0;
  if (!std::exchange(limit_divided_, true)) DivideLimitAmongPreloaded();
  if (entry->spec.preload && entry->limit > 0) return entry->limit;
  std::lock_guard lock(mutex_);
  int64_t left = options_.memory_limit;
  for (const auto& e : entries_) {
    if (e.get() != entry && e->spec.preload && e->host != nullptr) left -= e->memory.total();
  }
  return std::max<int64_t>(1, left);
}

void ModelPool::DivideLimitAmongPreloaded() {
  std::vector<Entry*> preloaded;
  for (const auto& e : entries_) {
    if (e->spec.preload) preloaded.push_back(e.get());
  }
  if (preloaded.size() < 2) return;
  std::vector<engine::Outline> outlines;
  outlines.reserve(preloaded.size());  // needs point into it
  std::vector<MemoryNeed> needs;
  for (const Entry* e : preloaded) {
    MemoryNeed& need = needs.emplace_back();
    // What is wrong with its file is told by its own load.
    auto outline = engine::ReadOutline(e->spec.path, LoadOptionsOf(*e));
    if (!outline.ok()) continue;
    need.program = &outlines.emplace_back(*std::move(outline)).program;
    need.request =
        MemoryRequestOf(outlines.back().config, Workers(), 0, HostOptionsOf(options_, e->spec));
  }
  const std::vector<int64_t> parts = DivideLimit(options_.memory_limit, needs);
  for (size_t i = 0; i < parts.size(); ++i) preloaded[i]->limit = parts[i];
}

engine::LoadOptions ModelPool::LoadOptionsOf(const Entry& entry) const {
  return {.numerics = entry.spec.numerics,
          .target = entry.spec.target,
          .threads = options_.threads,
          .cache_dir = options_.cache_dir,
          .serve_first = true};
}

int ModelPool::Workers() const { return options_.threads > 0 ? options_.threads : UsableCores(); }

// Idle models that came on request go to sleep, the longest unused first; the rest is an answer.
absl::Status ModelPool::MakeRoom(Entry* entry, int64_t bytes) {
  if (options_.memory_limit <= 0) return absl::OkStatus();
  for (;;) {
    int64_t used = 0;
    Entry* victim = nullptr;
    {
      std::lock_guard lock(mutex_);
      for (const auto& e : entries_) {
        if (e.get() == entry || e->host == nullptr) continue;
        used += e->memory.total();
        if (e->spec.preload || !e->host->idle() || e->queued) continue;
        if (victim == nullptr || e->last_used < victim->last_used) victim = e.get();
      }
    }
    if (used + bytes <= options_.memory_limit) return absl::OkStatus();
    if (victim == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("model '", entry->spec.name, "' needs ", bytes, " bytes and ",
                       std::max<int64_t>(0, options_.memory_limit - used), " of the limit of ",
                       options_.memory_limit, " are left; unload a model, or lower kv_tokens"));
    }
    DropNow(victim, /*sleep=*/true);
  }
}

void ModelPool::LoadNow(Entry* entry) {
  SetState(entry, ModelState::kLoading);
  const double begin = SteadySeconds();
  HostOptions host = HostOptionsOf(options_, entry->spec);
  host.memory_limit = entry->limit = LimitOf(entry);
  engine::LoadOptions load = LoadOptionsOf(*entry);
  load.admit = [&](const gguf::ModelConfig& config, const runtime::Program& program,
                   int64_t code_bytes) {
    const MemoryRequest request = MemoryRequestOf(config, Workers(), code_bytes, host);
    return MakeRoom(entry, PlanMemory(program, request).total());
  };
  auto model = engine::Model::Load(entry->spec.path, load);
  if (!model.ok()) {
    SetState(entry, ModelState::kFailed, std::string(model.status().message()));
    return;
  }
  ReportCompiled(observer_, entry->spec.name, **model);
  const absl::Status status = StartHost(entry, *std::move(model), begin);
  if (!status.ok()) SetState(entry, ModelState::kFailed, std::string(status.message()));
}

void ModelPool::WakeNow(Entry* entry) {
  SetState(entry, ModelState::kLoading);
  const double begin = SteadySeconds();
  std::shared_ptr<const engine::SleepingModel> sleeping;
  int64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    sleeping = entry->sleeping;
    bytes = entry->memory.total();
  }
  absl::Status status = MakeRoom(entry, bytes);
  if (status.ok()) {
    auto model = engine::Model::Wake(sleeping);
    status = model.ok() ? StartHost(entry, *std::move(model), begin) : model.status();
  }
  if (!status.ok()) {
    {
      std::lock_guard lock(mutex_);
      entry->wake_error = std::string(status.message());
    }
    // It is no worse off than before, and may be woken again.
    SetState(entry, ModelState::kSleeping, std::string(status.message()));
  }
}

absl::Status ModelPool::StartHost(Entry* entry, std::shared_ptr<const engine::Model> model,
                                  double begin_s) {
  const double start = SteadySeconds();
  std::unique_ptr<const text::ChatTemplate> chat;
  if (const std::string& source = model->tokenizer()->spec().chat_template; !source.empty()) {
    // A template that does not parse costs the chat endpoint, not the model.
    if (auto parsed = text::ChatTemplate::Parse(source); parsed.ok())
      chat = std::make_unique<const text::ChatTemplate>(*std::move(parsed));
  }
  HostOptions options = HostOptionsOf(options_, entry->spec);
  options.memory_limit = entry->limit;
  ASSIGN_OR_RETURN(std::shared_ptr<ModelHost> host, ModelHost::Start(model, options, observer_));
  ModelInfo info{.name = entry->spec.name,
                 .state = ModelState::kReady,
                 .architecture = model->config().arch,
                 .load_fraction = 1,
                 .created = static_cast<int64_t>(std::time(nullptr)),
                 .context = model->config().context_length,
                 .vocab_size = model->config().vocab_size,
                 .embedding_size = model->config().n_embd,
                 .memory_bytes = host->memory().total(),
                 .digest = DigestOf(entry->spec.path)};
  {
    std::lock_guard lock(mutex_);
    entry->memory = host->memory();
    entry->host = std::move(host);
    if (draining_.load()) entry->host->BeginDrain();
    entry->served = std::make_shared<Served>(info, model->tokenizer(), std::move(chat));
    entry->info = info;
    entry->settled = true;
    entry->queued = false;  // the next job may be asked for while the last layers land
    entry->last_used = SteadySeconds();
    entry->sleeping = nullptr;
    entry->wake_error.clear();
  }
  if (observer_ != nullptr) {
    observer_->OnLoadPhase(entry->spec.name, "host", SteadySeconds() - start);
    observer_->OnModelState(entry->spec.name, ModelState::kReady, "");
  }
  // It answers from here on; its last layers may still be landing.
  const absl::Status landed = model->weights().Wait();
  if (observer_ != nullptr) {
    observer_->OnWeightsSettled(entry->spec.name);
    if (landed.ok()) observer_->OnLoadPhase(entry->spec.name, "total", SteadySeconds() - begin_s);
  }
  ReportRest(observer_, entry->spec.name, *model);
  return absl::OkStatus();
}

void ModelPool::DropNow(Entry* entry, bool sleep) {
  std::shared_ptr<ModelHost> host;
  {
    std::lock_guard lock(mutex_);
    host = entry->host;  // stays reachable for aborts until it is idle
    entry->info.state = ModelState::kUnloading;
  }
  if (host != nullptr) {
    host->BeginDrain();
    // What was accepted is answered; a new request meanwhile is told to come back.
    while (!host->idle()) {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, std::chrono::milliseconds(10), [this] { return stop_; })) break;
    }
  }
  {
    std::lock_guard lock(mutex_);
    if (sleep && host != nullptr) entry->sleeping = host->shared_model()->Sleep();
    if (!sleep) {
      entry->sleeping = nullptr;
      entry->wake_error.clear();
      entry->memory = {};
    }
    entry->host = nullptr;
    entry->served = nullptr;
  }
  host.reset();
  SetState(entry, sleep ? ModelState::kSleeping : ModelState::kUnloaded);
}

}  // namespace cuvil::server
