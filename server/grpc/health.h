// grpc.health.v1: the server ("" or "cuvil.v1.Cuvil") and each model by name. Needs no key and goes
// on while the server drains. Any thread; Tick on the event thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "server/api/backend.h"

namespace cuvil::server::grpc {

class HealthService : public ::grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthService(Backend* backend) : backend_(backend) {}

  ::grpc::ServerUnaryReactor* Check(::grpc::CallbackServerContext* context,
                                    const ::grpc::health::v1::HealthCheckRequest* request,
                                    ::grpc::health::v1::HealthCheckResponse* response) override;
  ::grpc::ServerWriteReactor<::grpc::health::v1::HealthCheckResponse>* Watch(
      ::grpc::CallbackServerContext* context,
      const ::grpc::health::v1::HealthCheckRequest* request) override;

  // Nothing serves any more.
  void BeginDrain() { draining_.store(true); }

  // Tells watchers what has changed; how long until it should be called again.
  absl::Duration Tick();
  // Called when a watcher has come, so that the next Tick is soon. Set before the server starts.
  std::function<void()> on_watcher;

 private:
  using Status = ::grpc::health::v1::HealthCheckResponse::ServingStatus;
  class Watcher;

  Status StatusOf(const std::string& name) const;
  void Remove(const Watcher* watcher);

  Backend* const backend_;
  std::atomic<bool> draining_{false};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
};

}  // namespace cuvil::server::grpc
