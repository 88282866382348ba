#include "server/engine/model_pool.h"

#include <algorithm>
#include <utility>

#include "server/engine/model_pool_entry.h"

namespace cuvil::server {
namespace {

// The handle's high bits say which model, so that an abort needs no table of requests.
constexpr int kHandleBits = 48;

}  // namespace

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

absl::Status ModelPool::NotWoken(const Entry& e) {
  return absl::UnavailableError(
      absl::StrCat("model '", e.spec.name, "' could not be woken: ", e.wake_error));
}

absl::Status ModelPool::BeingLoaded(const Entry& e) {
  // Whoever is told to come back for ever should know why.
  if (!e.wake_error.empty()) return NotWoken(e);
  return absl::UnavailableError(
      absl::StrCat("model '", e.spec.name, "' is being loaded; try again shortly"));
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelPool::Find(std::string_view name) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Entry* const e, FindEntry(name));
  switch (e->info.state) {
    case ModelState::kReady:
      e->last_used = SteadySeconds();
      return std::shared_ptr<const ServedModel>(e->served);
    case ModelState::kUnloaded:
    case ModelState::kSleeping:
      if (options_.lazy_load && !draining_.load()) {
        QueueLocked(e,
                    e->info.state == ModelState::kSleeping ? Job::Kind::kWake : Job::Kind::kLoad);
        return BeingLoaded(*e);
      }
      if (!e->wake_error.empty()) return NotWoken(*e);
      return absl::UnavailableError(
          absl::StrCat("model '", e->spec.name, "' is not loaded; load it first"));
    case ModelState::kFailed:
      return absl::UnavailableError(
          absl::StrCat("model '", e->spec.name, "' could not be loaded; see the server's log"));
    case ModelState::kLoading:
      return BeingLoaded(*e);
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
    plans[e->spec.name] = e->host != nullptr ? e->memory : MemoryPlan{};
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

}  // namespace cuvil::server
