// The gRPC door of a process: cuvil.v1.Cuvil, grpc.health.v1 and reflection on one port. Starts on
// construction by Start and is stopped by the destructor, or gracefully by Drain. An interface, so
// that a program can use one that a module made (server/grpc/module) without linking gRPC.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "server/api/backend.h"
#include "server/grpc/options.h"

namespace cuvil::server::grpc {

// Of all methods that are reported, "/cuvil.v1.Cuvil/Generate" and so on: a closed set, fit for
// labels.
absl::Span<const std::string_view> Methods();

class Server {
 public:
  // Binds and serves. `backend` is not owned and outlives the server; so does what hooks point to.
  // InvalidArgument for an address that is none; Unavailable when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options, Hooks hooks,
                                                       Backend* backend);
  // Ends what is still open with UNAVAILABLE; call Drain before to let it finish.
  virtual ~Server() = default;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // "127.0.0.1:41234", "[::1]:8001": where it listens.
  virtual const std::string& address() const = 0;

  // Refuses new calls from now on (UNAVAILABLE; health says NOT_SERVING), lets running ones end.
  // After `deadline` the rest is ended with UNAVAILABLE. The port stays open until then. Returns
  // whether every call ended by itself. Any thread but the server's; once.
  virtual bool Drain(absl::Duration deadline) = 0;

 protected:
  Server() = default;
};

}  // namespace cuvil::server::grpc
