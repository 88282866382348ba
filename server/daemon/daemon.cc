#include "server/daemon/daemon.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "server/daemon/door_reporter.h"
#include "server/grpc/module/module.h"
#include "server/grpc/server.h"
#include "server/http/response.h"
#include "server/http/routes.h"
#include "server/http/server.h"
#include "server/ops/engine_reporter.h"
#include "server/ops/keys.h"
#include "server/ops/log.h"
#include "server/ops/machine_limits.h"
#include "server/ops/metrics.h"
#include "server/ops/notify.h"
#include "server/ops/reload.h"

namespace cuvil::server {
namespace {

using ops::Event;
using ops::Key;

constexpr int kStatsEveryS = 10;
// How much longer than it foresees the daemon asks the service manager to wait.
constexpr std::chrono::microseconds kServicePatience = std::chrono::seconds(30);

std::chrono::microseconds Microseconds(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, s);
  return set;
}

// What requests call a model whose entry has no name: its file's, without the suffix.
std::string NameOf(const ops::ModelEntry& entry) {
  return entry.name.empty() ? std::filesystem::path(entry.path).stem().string() : entry.name;
}

}  // namespace

absl::StatusOr<Sized> SizeDaemon(const DaemonOptions& options) {
  const ops::Config& c = options.config.config;
  const ops::Sizing sizing = ops::SizeServer(c, ReadMachineLimits());
  Sized out{.sentence = sizing.sentence, .warning = sizing.warning};
  PoolOptions& p = out.pool;
  p.threads = sizing.threads;
  p.memory_limit = sizing.memory_bytes;
  p.cache_dir = c.cache_dir.empty() ? options.cache_dir : c.cache_dir;
  p.sequences_max = static_cast<int>(c.max_running);
  p.queue_requests_max = c.queue_requests;
  p.queue_tokens_max = c.queue_tokens;
  p.itl_target_us = static_cast<int64_t>(c.itl_target_ms * 1000);
  p.deadline_ms_max = static_cast<int64_t>(c.request_timeout_s * 1000);
  p.prefix_cache = c.prefix_cache;
  p.lazy_load = c.lazy_load;
  p.pin = c.pin;
  std::vector<ops::ModelEntry> entries = c.models;
  if (entries.empty()) {
    if (options.default_model.empty())
      return absl::InvalidArgumentError("no model is configured; name one with --model FILE");
    entries.push_back({.path = options.default_model});
  }
  for (const ops::ModelEntry& e : entries) {
    ModelSpec spec{.name = NameOf(e),
                   .path = e.path,
                   .preload = e.preload,
                   .target = c.target,
                   .kv_tokens = e.kv_tokens > 0 ? e.kv_tokens : c.kv_cache_tokens,
                   .trim = {.max_kv_len = e.max_kv_len, .sinks = e.kv_sinks}};
    ASSIGN_OR_RETURN(spec.numerics,
                     plan::ParseNumerics(e.numerics.empty() ? c.numerics : e.numerics));
    // The default one stands first.
    const bool first = !c.default_model.empty() && spec.name == c.default_model;
    p.models.insert(first ? p.models.begin() : p.models.end(), std::move(spec));
  }
  if (!c.default_model.empty() && p.models[0].name != c.default_model) {
    return absl::InvalidArgumentError(absl::StrCat(
        "default_model is '", c.default_model, "' and no model is called so; name one of them"));
  }
  for (const ops::KeyEntry& key : c.api_keys) p.tenant_weights[key.tenant] = key.weight;
  return out;
}

class Daemon::Impl {
 public:
  explicit Impl(DaemonOptions options) : options_(std::move(options)) {}

  absl::Status Start() {
    const ops::Config& c = options_.config.config;
    ASSIGN_OR_RETURN(const ops::LogOptions log, ops::LogOptionsOf(c));
    log_ = std::make_unique<ops::Logger>(log);
    ASSIGN_OR_RETURN(Sized sized, SizeDaemon(options_));
    ASSIGN_OR_RETURN(auto keys, ops::KeySet::Create(c.api_keys));
    SetKeys(std::move(keys));
    ASSIGN_OR_RETURN(service_, ops::ServiceManager::FromEnvironment());
    ops::MetricsOptions metrics{.vllm = c.metrics_compat == "vllm", .version = options_.version};
    for (const ModelSpec& m : sized.pool.models) metrics.models.push_back(m.name);
    if (!c.listen.empty()) {
      for (const http::Route& r : http::Routes()) metrics.http_routes.push_back(r.pattern);
      for (const int code : http::StatusCodes()) metrics.http_codes.push_back(absl::StrCat(code));
    }
    if (!c.grpc_listen.empty()) {
      ASSIGN_OR_RETURN(grpc_entry_, grpc::LoadModule());
      for (const std::string_view m : grpc_entry_->methods()) metrics.grpc_methods.emplace_back(m);
    }
    metrics_ = std::make_unique<ops::Metrics>(metrics);
    engine_reporter_ = std::make_unique<ops::EngineReporter>(
        ops::EngineReporter::Options{.models = metrics.models, .watchdog_s = c.watchdog_s},
        metrics_.get(), log_.get());
    http_reporter_ = std::make_unique<DoorReporter>("http", metrics_.get(), log_.get());
    grpc_reporter_ = std::make_unique<DoorReporter>("grpc", metrics_.get(), log_.get());
    log_->Info(Event::kStart, {{Key::kVersion, options_.version},
                               {Key::kFile, options_.config.file},
                               {Key::kThreads, static_cast<int64_t>(sized.pool.threads)},
                               {Key::kMemoryBytes, sized.pool.memory_limit},
                               {Key::kDetail, sized.sentence}});
    if (!sized.warning.empty()) log_->Warn(Event::kConfig, {{Key::kDetail, sized.warning}});
    for (const std::string& w : options_.config.warnings)
      log_->Warn(Event::kConfig, {{Key::kDetail, w}});
    ASSIGN_OR_RETURN(pool_, ModelPool::Create(std::move(sized.pool), engine_reporter_.get()));
    metrics_->SetRefresh([this](ops::Metrics& m) { RefreshMetrics(m); });
    RETURN_IF_ERROR(OpenDoors());
    pool_->Start();
    return absl::OkStatus();
  }

  absl::Status Run() {
    const sigset_t signals = EndingSignals();
    int seconds = 0;
    std::chrono::steady_clock::time_point ask_at;
    for (;;) {
      // A large model on a slow disk takes longer than any manager's usual patience.
      if (const auto now = std::chrono::steady_clock::now(); !ready_told_ && now >= ask_at) {
        ask_at = now + kServicePatience / 3;
        service_.ExtendTimeout(kServicePatience).IgnoreError();
      }
      // Often until it is ready, so that the ready file is not late.
      const timespec wait = ready_told_ ? timespec{1, 0} : timespec{0, 5'000'000};
      const int signal = sigtimedwait(&signals, nullptr, &wait);
      if (signal == SIGTERM || signal == SIGINT) return Drain();
      if (signal == SIGHUP) Reload();
      absl::Status status = TellReady();
      if (status.ok()) status = NothingToServe();
      if (!status.ok()) {
        Drain().IgnoreError();
        return status;
      }
      if (signal < 0 && ready_told_) Tick(++seconds);
    }
  }

  const std::string& http_address() const { return http_address_; }
  const std::string& grpc_address() const { return grpc_address_; }

 private:
  absl::Status OpenDoors() {
    const ops::Config& c = options_.config.config;
    if (!c.ready_file.empty()) RETURN_IF_ERROR(CheckReplaceable(c.ready_file));
    if (!c.listen.empty()) RETURN_IF_ERROR(OpenHttp(c));
    if (!c.grpc_listen.empty()) RETURN_IF_ERROR(OpenGrpc(c));
    // A process that was killed left its ready file: whoever waits for ours must not find that one.
    // Only now, with the addresses taken: a second daemon by mistake leaves the first one's alone.
    std::error_code none_there;
    if (!c.ready_file.empty()) std::filesystem::remove(c.ready_file, none_there);
    log_->Info(Event::kListen, {{Key::kHttp, http_address_}, {Key::kGrpc, grpc_address_}});
    return absl::OkStatus();
  }

  absl::Status OpenHttp(const ops::Config& c) {
    ASSIGN_OR_RETURN(const ops::Endpoint endpoint, ops::ParseEndpoint(c.listen));
    http::Options o;
    o.host = endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host;
    o.port = static_cast<uint16_t>(endpoint.port);
    o.head_bytes_max = static_cast<size_t>(c.max_header_bytes);
    o.body_bytes_max = static_cast<size_t>(c.max_body_bytes);
    o.backlog_bytes_max = static_cast<size_t>(c.max_backlog_bytes);
    o.connections_max = static_cast<int>(c.max_connections);
    o.pool_threads = static_cast<int>(c.pool_threads);
    o.head_timeout = absl::Seconds(c.header_timeout_s);
    o.body_total_timeout = absl::Seconds(c.body_timeout_s);
    o.write_timeout = absl::Seconds(c.write_timeout_s);
    o.keep_alive_timeout = absl::Seconds(c.idle_timeout_s);
    o.ping_interval = absl::Seconds(c.sse_ping_s);
    o.request_timeout = absl::Seconds(c.request_timeout_s);
    o.allowed_hosts = c.allowed_hosts;
    o.cors_origins = c.cors_origins;
    o.open_metrics = !c.metrics_auth;
    o.version = options_.version;
    http::Hooks hooks;
    hooks.observer = http_reporter_.get();
    hooks.metrics = [this] { return metrics_->Text(); };
    hooks.authorizer = [this](const http::Credentials& k) { return Authorize(k); };
    ASSIGN_OR_RETURN(http_, http::Server::Start(std::move(o), std::move(hooks), pool_.get()));
    http_address_ = http_->address();
    return absl::OkStatus();
  }

  absl::Status OpenGrpc(const ops::Config& c) {
    ASSIGN_OR_RETURN(const ops::Endpoint endpoint, ops::ParseEndpoint(c.grpc_listen));
    grpc::Options o;
    o.host = endpoint.host;
    o.port = static_cast<uint16_t>(endpoint.port);
    o.message_bytes_max = static_cast<size_t>(c.max_body_bytes);
    o.backlog_bytes_max = static_cast<size_t>(c.max_backlog_bytes);
    o.calls_max = static_cast<int>(c.max_connections);
    o.pool_threads = static_cast<int>(c.pool_threads);
    o.write_timeout = absl::Seconds(c.write_timeout_s);
    o.keepalive_time = absl::Seconds(c.idle_timeout_s);
    o.request_timeout = absl::Seconds(c.request_timeout_s);
    grpc::Hooks hooks;
    hooks.observer = grpc_reporter_.get();
    hooks.authorizer = [this](const http::Credentials& k) { return Authorize(k); };
    ASSIGN_OR_RETURN(grpc_, grpc_entry_->start(std::move(o), std::move(hooks), pool_.get()));
    grpc_address_ = grpc_->address();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Authorize(const http::Credentials& k) const {
    return Keys()->Authorize(k.bearer, k.access == http::Access::kAdmin);
  }

  std::shared_ptr<const ops::KeySet> Keys() const {
    const std::lock_guard lock(keys_mutex_);
    return keys_;
  }

  void SetKeys(ops::KeySet keys) {
    auto fresh = std::make_shared<const ops::KeySet>(std::move(keys));
    const std::lock_guard lock(keys_mutex_);
    keys_.swap(fresh);
  }

  // Requests that run were let in by the old keys and go on.
  void Reload() {
    if (!options_.reload) return;
    const absl::StatusOr<ops::Effective> read = options_.reload();
    absl::StatusOr<ops::Reload> plan = read.ok() ? ops::PlanReload(running_, read->config)
                                                 : absl::StatusOr<ops::Reload>(read.status());
    if (!plan.ok()) {
      const std::string why = absl::StrCat("not reloaded: ", plan.status().message());
      log_->Warn(Event::kConfig, {{Key::kDetail, why}});
      return;
    }
    SetKeys(std::move(plan->keys));
    running_.api_keys = read->config.api_keys;
    running_.api_keys_file = read->config.api_keys_file;
    const std::string what = absl::StrCat("reloaded: ", plan->changed);
    log_->Info(Event::kConfig, {{Key::kFile, read->file}, {Key::kDetail, what}});
    if (!plan->waits.empty()) log_->Warn(Event::kConfig, {{Key::kDetail, plan->waits}});
  }

  void RefreshMetrics(ops::Metrics& metrics) const {
    for (const ModelInfo& info : pool_->Models()) {
      if (auto load = pool_->GetLoad(info.name); load.ok()) metrics.Model(info.name).SetLoad(*load);
    }
    for (const auto& [name, m] : pool_->memory())
      metrics.Model(name).SetMemory(m.weights, m.kv, m.workspace, m.code);
  }

  // Once, when a model takes requests: the ready file and the service manager learn of it.
  absl::Status TellReady() {
    if (ready_told_ || !pool_->ready()) return absl::OkStatus();
    ready_told_ = true;
    const std::string& file = options_.config.config.ready_file;
    if (!file.empty()) {
      Json json = Json::object();
      if (!http_address_.empty()) json["http"] = http_address_;
      if (!grpc_address_.empty()) json["grpc"] = grpc_address_;
      const std::string text = WriteJson(json) + "\n";
      const absl::Status written =
          WriteFileAtomic(file, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      if (!written.ok()) return absl::InternalError(written.message());
    }
    log_->Info(Event::kReady, {{Key::kHttp, http_address_}, {Key::kGrpc, grpc_address_}});
    service_.Ready("taking requests").IgnoreError();
    return absl::OkStatus();
  }

  // An error once every model has failed before any was ready: whoever started the daemon sees why
  // at once. One that an admin may still load keeps it up.
  absl::Status NothingToServe() const {
    if (ready_told_ || !pool_->started()) return absl::OkStatus();
    const std::vector<ModelInfo> models = pool_->Models();
    const bool failed = std::ranges::all_of(
        models, [](const ModelInfo& m) { return m.state == ModelState::kFailed; });
    if (!failed) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("model '", models[0].name, "' could not be loaded: ", models[0].error));
  }

  void Tick(int seconds) {
    const bool alive = engine_reporter_->CheckAlive(pool_->steps(), pool_->busy());
    pool_->SetAlive(alive);
    if (alive && service_.watchdog_interval().count() > 0) service_.Watchdog().IgnoreError();
    if (seconds % kStatsEveryS == 0) engine_reporter_->LogStats(TotalLoad());
  }

  Load TotalLoad() const {
    Load total;
    for (const ModelInfo& info : pool_->Models()) {
      const auto load = pool_->GetLoad(info.name);
      if (!load.ok()) continue;
      total.running += load->running;
      total.waiting += load->waiting;
      total.pages_total += load->pages_total;
      total.pages_used += load->pages_used;
      total.pages_cached += load->pages_cached;
    }
    return total;
  }

  absl::Status Drain() {
    const double limit = options_.config.config.drain_timeout_s;
    log_->Info(Event::kDrain, {{Key::kSeconds, limit}});
    service_.Stopping("finishing what runs").IgnoreError();
    service_.ExtendTimeout(Microseconds(limit) + kServicePatience).IgnoreError();
    pool_->BeginDrain();
    std::atomic<bool> done{false};
    std::thread drain([&] {
      std::thread drain_grpc([&] {
        if (grpc_ != nullptr) grpc_->Drain(absl::Seconds(limit));
      });
      if (http_ != nullptr) http_->Drain(absl::Seconds(limit));
      drain_grpc.join();
      done.store(true);
    });
    // A second signal ends what still runs.
    const sigset_t signals = EndingSignals();
    const timespec wait = {0, 20'000'000};
    bool stopped = false;
    while (!done.load()) {
      const int signal = sigtimedwait(&signals, nullptr, &wait);
      if ((signal == SIGTERM || signal == SIGINT) && !stopped) {
        stopped = true;
        pool_->Stop();
      }
    }
    drain.join();
    http_.reset();
    grpc_.reset();
    pool_->Stop();
    log_->Info(Event::kStop, {{Key::kDetail, "stopped"}});
    log_->Flush();
    return absl::OkStatus();
  }

  const DaemonOptions options_;
  std::unique_ptr<ops::Logger> log_;
  ops::Config running_ = options_.config.config;  // what counts; keys change by Reload
  mutable std::mutex keys_mutex_;
  std::shared_ptr<const ops::KeySet> keys_;  // under keys_mutex_
  std::unique_ptr<ops::Metrics> metrics_;
  std::unique_ptr<ops::EngineReporter> engine_reporter_;
  std::unique_ptr<DoorReporter> http_reporter_, grpc_reporter_;
  ops::ServiceManager service_;
  std::unique_ptr<ModelPool> pool_;
  std::unique_ptr<http::Server> http_;
  const grpc::Entry* grpc_entry_ = nullptr;  // null: no gRPC
  std::unique_ptr<grpc::Server> grpc_;
  std::string http_address_, grpc_address_;
  bool ready_told_ = false;
};

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() = default;

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options) {
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto impl = std::make_unique<Impl>(options);
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

absl::Status Daemon::Run() { return impl_->Run(); }
const std::string& Daemon::http_address() const { return impl_->http_address(); }
const std::string& Daemon::grpc_address() const { return impl_->grpc_address(); }

}  // namespace cuvil::server
