#include "server/grpc/health.h"

#include <optional>
#include <utility>

namespace cuvil::server::grpc {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

// The backend tells no changes: it is asked, more often while somebody watches.
constexpr absl::Duration kWatchedTick = absl::Milliseconds(100);
constexpr absl::Duration kIdleTick = absl::Seconds(1);
// Balancers and operators; each is asked about ten times a second.
constexpr size_t kWatchersMax = 1024;

}  // namespace

class HealthService::Watcher : public ::grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, std::string name) : service_(service), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  void Tell(Status status) {
    const std::lock_guard lock(mutex_);
    if (finished_ || status == told_) return;
    told_ = status;
    Pump();
  }
  void End(::grpc::Status status) {
    const std::lock_guard lock(mutex_);
    if (!final_.has_value()) final_ = std::move(status);
    Pump();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok && !final_.has_value()) final_ = ::grpc::Status::CANCELLED;
    Pump();
  }
  void OnCancel() override { End(::grpc::Status::CANCELLED); }
  void OnDone() override { service_->Remove(this); }

 private:
  // The newest status only: what lay between is nobody's concern any more.
  void Pump() {
    if (writing_ || finished_) return;
    if (final_.has_value()) {
      finished_ = true;
      return Finish(*final_);
    }
    if (told_ == sent_) return;
    sent_ = told_;
    writing_ = true;
    response_.set_status(*told_);
    StartWrite(&response_);
  }

  HealthService* const service_;
  const std::string name_;
  std::mutex mutex_;
  std::optional<Status> told_, sent_;
  std::optional<::grpc::Status> final_;
  bool writing_ = false, finished_ = false;
  HealthCheckResponse response_;
};

HealthService::Status HealthService::StatusOf(const std::string& name) const {
  const auto serving = [](bool yes) {
    return yes ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  };
  const bool draining = draining_.load() || backend_->draining();
  if (name.empty() || name == "cuvil.v1.Cuvil") return serving(!draining && backend_->ready());
  for (const ModelInfo& info : backend_->Models()) {
    if (info.name == name) return serving(!draining && info.state == ModelState::kReady);
  }
  return HealthCheckResponse::SERVICE_UNKNOWN;
}

::grpc::ServerUnaryReactor* HealthService::Check(::grpc::CallbackServerContext* context,
                                                 const HealthCheckRequest* request,
                                                 HealthCheckResponse* response) {
  ::grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Status status = StatusOf(request->service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(::grpc::Status(::grpc::StatusCode::NOT_FOUND, "there is no such model"));
  } else {
    response->set_status(status);
    reactor->Finish(::grpc::Status::OK);
  }
  return reactor;
}

::grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    ::grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  const auto watcher = std::make_shared<Watcher>(this, request->service());
  bool room = true;
  {
    const std::lock_guard lock(mutex_);
    room = watchers_.size() < kWatchersMax;
    watchers_.push_back(watcher);
  }
  if (room) {
    watcher->Tell(StatusOf(watcher->name()));
    on_watcher();
  } else {
    watcher->End(::grpc::Status(::grpc::StatusCode::RESOURCE_EXHAUSTED,
                                "there are too many watchers; use Check"));
  }
  return watcher.get();
}

void HealthService::Remove(const Watcher* watcher) {
  std::shared_ptr<Watcher> removed;
  const std::lock_guard lock(mutex_);
  for (auto it = watchers_.begin(); it != watchers_.end(); ++it) {
    if (it->get() != watcher) continue;
    removed = std::move(*it);
    watchers_.erase(it);
    return;
  }
}

absl::Duration HealthService::Tick() {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    const std::lock_guard lock(mutex_);
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Tell(StatusOf(watcher->name()));
  return watchers.empty() ? kIdleTick : kWatchedTick;
}

}  // namespace cuvil::server::grpc
