// The daemon: models, doors, keys, metrics and log, put together from one configuration; then its
// life until a signal ends it.
//
//   Start: limits, keys, log, models begin to load, doors open     (probes answer from here on)
//   Run:   once a second: watchdog, service manager, statistics
//   SIGHUP: the configuration is read again. Its API keys count from then on, for new requests;
//   what else differs is logged and counts at the next start. What cannot be read changes nothing.
//   SIGTERM or SIGINT: not ready, refuse, finish what runs, within drain_timeout; a second one ends
//   what still runs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/engine/model_pool.h"
#include "server/ops/config.h"

namespace cuvil::server {

struct DaemonOptions {
  ops::Effective config;
  std::string default_model;  // file served when the configuration names no model
  std::string cache_dir;      // when the configuration names none
  std::string version;
  // Reads the configuration again, for SIGHUP; on the thread of Run. Empty: SIGHUP does nothing.
  std::function<absl::StatusOr<ops::Effective>()> reload;
};

// How the configuration becomes models: names, limits, sizes.
struct Sized {
  PoolOptions pool;
  std::string sentence, warning;  // of the sizing
};
absl::StatusOr<Sized> SizeDaemon(const DaemonOptions& options);

class Daemon {
 public:
  // InvalidArgument and Unavailable as the parts say (an address, a key, a port in use). Blocks
  // SIGTERM, SIGINT and SIGHUP in the calling thread, which must be the process's first, before it
  // starts any other.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Until a signal has ended it. OK when everything accepted was answered or told why not.
  absl::Status Run();

  const std::string& http_address() const;  // empty: no HTTP
  const std::string& grpc_address() const;  // empty: no gRPC

 private:
  class Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvil::server
