#include "server/engine/model_pool.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/hash.h"
#include "server/engine/load_report.h"

namespace cuvil::server {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Model and file: a door caches by it, and it changes when the file does.
std::string DigestOf(const std::string& path) {
  struct stat st = {};
  if (stat(path.c_str(), &st) != 0) return "";
  return Sha256Hex(absl::StrCat(st.st_dev, ":", st.st_ino, ":", st.st_size, ":", st.st_mtim.tv_sec,
                                ".", st.st_mtim.tv_nsec));
}

class Served : public ServedModel {
 public:
  Served(ModelInfo info, std::shared_ptr<const text::Tokenizer> tokenizer,
         std::unique_ptr<const text::ChatTemplate> chat)
      : info_(std::move(info)), tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}
  const ModelInfo& info() const override { return info_; }
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const override { return tokenizer_; }
  const text::ChatTemplate* chat_template() const override { return chat_.get(); }

 private:
  const ModelInfo info_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::unique_ptr<const text::ChatTemplate> chat_;
};

// The handle's high bits say which model, so that an abort needs no table of requests.
constexpr int kHandleBits = 48;

}  // namespace

struct ModelPool::Entry {
  ModelSpec spec;
  uint64_t index = 0;
  // Guarded by the pool's mutex; written by the loader thread.
  ModelInfo info;
  std::shared_ptr<ModelHost> host;
  std::shared_ptr<const Served> served;
  std::shared_ptr<const engine::SleepingModel> sleeping;
  MemoryPlan memory;
  bool queued = false;   // a job for it waits, or runs and has not settled its state
  bool settled = false;  // loaded or failed once: what started() waits for
  double last_used = 0;
};

ModelPool::ModelPool(PoolOptions options, EngineObserver* observer)
    : options_(std::move(options)), observer_(observer) {}

absl::StatusOr<std::unique_ptr<ModelPool>> ModelPool::Create(PoolOptions options,
                                                             EngineObserver* observer) {
  if (options.models.empty())
    return absl::InvalidArgumentError("no model is configured; name one with --model FILE");
  std::unique_ptr<ModelPool> pool(new ModelPool(std::move(options), observer));
  for (const ModelSpec& spec : pool->options_.models) {
    for (const auto& other : pool->entries_) {
      if (other->spec.name == spec.name) {
        return absl::InvalidArgumentError(
            absl::StrCat("two models are called '", spec.name, "'; give each a name of its own"));
      }
    }
    auto entry = std::make_unique<Entry>();
    entry->spec = spec;
    entry->index = pool->entries_.size();
    entry->info.name = spec.name;
    pool->entries_.push_back(std::move(entry));
  }
  pool->loader_ = std::thread([p = pool.get()] { p->LoaderLoop(); });
  return pool;
}

ModelPool::~ModelPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (loader_.joinable()) loader_.join();
  Stop();
}

void ModelPool::Start() {
  std::lock_guard lock(mutex_);
  for (const auto& e : entries_) {
    if (e->spec.preload)
      QueueLocked(e.get(), Job::Kind::kLoad);
    else
      e->settled = true;
  }
}

void ModelPool::BeginDrain() {
  draining_.store(true);
  std::lock_guard lock(mutex_);
  for (const auto& e : entries_) {
    if (e->host != nullptr) e->host->BeginDrain();
  }
}

bool ModelPool::idle() const {
  std::lock_guard lock(mutex_);
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& e) { return e->host == nullptr || e->host->idle(); });
}

void ModelPool::Stop() {
  draining_.store(true);
  std::vector<std::shared_ptr<ModelHost>> hosts;
  {
    std::lock_guard lock(mutex_);
    for (const auto& e : entries_) hosts.push_back(std::move(e->host));
  }
  hosts.clear();  // joins the step threads
}

std::vector<ModelInfo> ModelPool::Models() const {
  std::lock_guard lock(mutex_);
  std::vector<ModelInfo> infos;
  for (const auto& e : entries_) infos.push_back(e->info);
  return infos;
}

absl::StatusOr<ModelPool::Entry*> ModelPool::FindEntry(std::string_view name) const {
  if (name.empty()) return entries_[0].get();
  std::string names;
  for (const auto& e : entries_) {
    if (e->spec.name == name) return e.get();
    absl::StrAppend(&names, names.empty() ? "" : ", ", e->spec.name);
  }
  return absl::NotFoundError(
      absl::StrCat("no model is called '", Sv(name), "'; there is: ", names));
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelPool::Find(std::string_view name) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Entry* const e, FindEntry(name));
  switch (e->info.state) {
    case ModelState::kReady:
      e->last_used = Now();
      return std::shared_ptr<const ServedModel>(e->served);
    case ModelState::kUnloaded:
    case ModelState::kSleeping:
      if (options_.lazy_load && !draining_.load()) {
        QueueLocked(e,
                    e->info.state == ModelState::kSleeping ? Job::Kind::kWake : Job::Kind::kLoad);
        return absl::UnavailableError(
            absl::StrCat("model '", e->spec.name, "' is being loaded; try again shortly"));
      }
      return absl::UnavailableError(
          absl::StrCat("model '", e->spec.name, "' is not loaded; load it first"));
    case ModelState::kFailed:
      return absl::UnavailableError(
          absl::StrCat("model '", e->spec.name, "' could not be loaded; see the server's log"));
    default:
      return absl::UnavailableError(absl::StrCat(
          "model '", e->spec.name, "' is ", Sv(StateName(e->info.state)), "; try again shortly"));
  }
}

absl::StatusOr<uint64_t> ModelPool::Submit(GenerateRequest request,
                                           std::shared_ptr<AnswerSink> sink) {
  if (draining_.load())
    return absl::UnavailableError("the server takes no new requests: it is stopping; try another");
  std::shared_ptr<ModelHost> host;
  uint64_t handle = 0;
  {
    RETURN_IF_ERROR(Find(request.model).status());
    std::lock_guard lock(mutex_);
    ASSIGN_OR_RETURN(Entry* const e, FindEntry(request.model));
    host = e->host;
    handle = e->index << kHandleBits | next_handle_.fetch_add(1);
  }
  if (host == nullptr)
    return absl::UnavailableError("the model has just been unloaded; try again shortly");
  RETURN_IF_ERROR(host->Submit(handle, std::move(request), std::move(sink)));
  return handle;
}

void ModelPool::Abort(uint64_t handle) {
  std::shared_ptr<ModelHost> host;
  {
    std::lock_guard lock(mutex_);
    const uint64_t index = handle >> kHandleBits;
    if (index >= entries_.size()) return;
    host = entries_[index]->host;
  }
  if (host != nullptr) host->Abort(handle);
}

absl::Status ModelPool::CheckRoom(int64_t deadline_ms) const {
  std::lock_guard lock(mutex_);
  absl::Status refusal;
  for (const auto& entry : entries_) {
    // It may be loaded for the request.
    if (entry->host == nullptr || entry->info.state != ModelState::kReady) return absl::OkStatus();
    absl::Status room = entry->host->CheckRoom(deadline_ms);
    if (room.ok()) return room;
    if (refusal.ok()) refusal = std::move(room);
  }
  return refusal;
}

absl::StatusOr<Load> ModelPool::GetLoad(std::string_view model) const {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Entry* const e, FindEntry(model));
  return e->host == nullptr ? Load{} : e->host->load();
}

absl::Status ModelPool::Queue(std::string_view name, Job::Kind kind) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Entry* const e, FindEntry(name));
  const ModelState s = e->info.state;
  const bool up = s == ModelState::kReady;
  if (e->queued) {
    return absl::UnavailableError(
        absl::StrCat("model '", e->spec.name, "' is ", Sv(StateName(s)), "; wait for that to end"));
  }
  if (kind == Job::Kind::kLoad && up) return absl::OkStatus();
  if (kind == Job::Kind::kLoad && s == ModelState::kSleeping) kind = Job::Kind::kWake;
  if (kind == Job::Kind::kUnload && s == ModelState::kUnloaded) return absl::OkStatus();
  if ((kind == Job::Kind::kSleep && !up) ||
      (kind == Job::Kind::kWake && s != ModelState::kSleeping)) {
    if (kind == Job::Kind::kWake && up) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("model '", e->spec.name, "' is ", Sv(StateName(s)),
                     kind == Job::Kind::kSleep ? "; only a ready model can sleep"
                                               : "; only a sleeping model can wake"));
  }
  QueueLocked(e, kind);
  return absl::OkStatus();
}

void ModelPool::QueueLocked(Entry* entry, Job::Kind kind) {
  if (entry->queued) return;
  entry->queued = true;
  if (kind == Job::Kind::kLoad || kind == Job::Kind::kWake)
    entry->info.state = ModelState::kLoading;
  jobs_.push_back({kind, entry});
  wake_.notify_all();
}

absl::Status ModelPool::LoadModel(std::string_view name) { return Queue(name, Job::Kind::kLoad); }
absl::Status ModelPool::UnloadModel(std::string_view name) {
  return Queue(name, Job::Kind::kUnload);
}
absl::Status ModelPool::Sleep(std::string_view name) { return Queue(name, Job::Kind::kSleep); }
absl::Status ModelPool::Wake(std::string_view name) { return Queue(name, Job::Kind::kWake); }

bool ModelPool::started() const {
  std::lock_guard lock(mutex_);
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& e) { return e->settled; });
}

bool ModelPool::ready() const {
  if (draining_.load()) return false;
  std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& e) { return e->info.state == ModelState::kReady; });
}

bool ModelPool::alive() const { return alive_.load(); }

std::map<std::string, MemoryPlan> ModelPool::memory() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, MemoryPlan> plans;
  for (const auto& e : entries_) {
    if (e->host != nullptr) plans[e->spec.name] = e->memory;
  }
  return plans;
}

int64_t ModelPool::steps() const {
  std::lock_guard lock(mutex_);
  int64_t steps = 0;
  for (const auto& e : entries_) steps += e->host == nullptr ? 0 : e->host->steps();
  return steps;
}

bool ModelPool::busy() const {
  std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& e) { return e->host != nullptr && !e->host->idle(); });
}

// ---- The loader thread ----

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
    if (state == ModelState::kReady || state == ModelState::kFailed) entry->settled = true;
    if (state != ModelState::kLoading) entry->queued = false;
  }
  if (observer_ != nullptr) observer_->OnModelState(entry->spec.name, state, error);
}

HostOptions ModelPool::HostOptionsOf(const Entry& e) const {
  return {.name = e.spec.name,
          .kv_tokens = e.spec.kv_tokens,
          .sequences_max = options_.sequences_max,
          .queue_requests_max = options_.queue_requests_max,
          .queue_tokens_max = options_.queue_tokens_max,
          .itl_target_us = options_.itl_target_us,
          .prefix_cache = options_.prefix_cache,
          .trim = e.spec.trim,
          .deadline_ms_max = options_.deadline_ms_max,
          .memory_limit = options_.memory_limit,
          .cache_dir = options_.cache_dir,
          .tenant_weights = options_.tenant_weights,
          .pin = options_.pin};
}

MemoryRequest ModelPool::MemoryRequestOf(const gguf::ModelConfig& config,
                                         const Entry& entry) const {
  return {.context = config.context_length,
          .vocab_size = config.vocab_size,
          .embedding_size = config.n_embd,
          .workers = options_.threads > 0 ? options_.threads : UsableCores(),
          .sequences_max = options_.sequences_max,
          .kv_tokens = entry.spec.kv_tokens,
          .limit = options_.memory_limit};
}

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
  const double begin = Now();
  engine::LoadOptions load{.numerics = entry->spec.numerics,
                           .target = entry->spec.target,
                           .threads = options_.threads,
                           .cache_dir = options_.cache_dir,
                           .serve_first = true};
  load.admit = [&](const gguf::ModelConfig& config, const runtime::Program& program,
                   int64_t code_bytes) {
    MemoryRequest request = MemoryRequestOf(config, *entry);
    request.code_bytes = code_bytes;
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
  const double begin = Now();
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
    // It is no worse off than before, and may be woken again.
    SetState(entry, ModelState::kSleeping, std::string(status.message()));
  }
}

absl::Status ModelPool::StartHost(Entry* entry, std::shared_ptr<const engine::Model> model,
                                  double begin_s) {
  const double start = Now();
  std::unique_ptr<const text::ChatTemplate> chat;
  if (const std::string& source = model->tokenizer()->spec().chat_template; !source.empty()) {
    // A template that does not parse costs the chat endpoint, not the model.
    if (auto parsed = text::ChatTemplate::Parse(source); parsed.ok())
      chat = std::make_unique<const text::ChatTemplate>(*std::move(parsed));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<ModelHost> host,
                   ModelHost::Start(model, HostOptionsOf(*entry), observer_));
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
    entry->last_used = Now();
    entry->sleeping = nullptr;
  }
  if (observer_ != nullptr) {
    observer_->OnLoadPhase(entry->spec.name, "host", Now() - start);
    observer_->OnModelState(entry->spec.name, ModelState::kReady, "");
  }
  // It answers from here on; its last layers may still be landing.
  const absl::Status landed = model->weights().Wait();
  if (observer_ != nullptr && landed.ok())
    observer_->OnLoadPhase(entry->spec.name, "total", Now() - begin_s);
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
      entry->memory = {};
    }
    entry->host = nullptr;
    entry->served = nullptr;
  }
  host.reset();
  SetState(entry, sleep ? ModelState::kSleeping : ModelState::kUnloaded);
}

}  // namespace cuvil::server
