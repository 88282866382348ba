// The HTTP front of a process: a listener, one thread that does all input and output, and a small
// pool. Starts on construction by Start and is stopped by the destructor, or gracefully by Drain.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "server/api/backend.h"
#include "server/http/options.h"

namespace cuvil::server::http {

class Server {
 public:
  // Binds and serves. `backend` is not owned and outlives the server; so does what hooks point to.
  // InvalidArgument for an address that is none; Unavailable when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options, Hooks hooks,
                                                       Backend* backend);
  // Cuts what is still open, aborting its work; call Drain before to let it finish.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // "127.0.0.1:41234", "[::1]:8000": where it listens.
  const std::string& address() const;

  // Refuses new requests from now on (503, Retry-After, Connection: close), lets running ones end.
  // After `deadline` the rest is failed with an error event or status and closed. The port stays
  // open until then, so that probes see "draining" and clients an answer instead of a reset.
  // Returns whether every request ended by itself. Any thread but the server's; once.
  bool Drain(absl::Duration deadline);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvil::server::http
