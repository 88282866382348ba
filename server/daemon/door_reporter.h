// What a door tells, turned into metrics and log lines. Any thread.
#pragma once

#include "server/http/observer.h"
#include "server/ops/log.h"
#include "server/ops/metrics.h"

namespace cuvil::server {

class DoorReporter : public http::Observer {
 public:
  // Both outlive it. `protocol` is the label of this door: "http" or "grpc".
  DoorReporter(std::string_view protocol, ops::Metrics* metrics, ops::Logger* log)
      : protocol_(protocol), metrics_(metrics), log_(log) {}

  void OnConnections(int64_t open) override;
  void OnStarted(const http::RequestStart& start) override;
  void OnEnded(const http::RequestRecord& record) override;
  void OnRejected(http::RejectReason reason, std::string_view endpoint) override;

 private:
  const std::string_view protocol_;
  ops::Metrics* const metrics_;
  ops::Logger* const log_;
};

}  // namespace cuvil::server
