// The gRPC door's shared module, lib/libcuvil-grpc.so beside the program's bin/ (base/module.h). It
// holds everything that needs gRPC and protobuf, and is loaded by a daemon that is to speak gRPC:
// no other command starts the two dozen libraries these bring.
#pragma once

#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "base/status.h"
#include "server/api/backend.h"
#include "server/grpc/options.h"
#include "server/grpc/server.h"

namespace cuvil::server::grpc {

// What the module exports as kEntry: Methods and Server::Start of server.h.
struct Entry {
  absl::Span<const std::string_view> (*methods)();
  absl::StatusOr<std::unique_ptr<Server>> (*start)(Options options, Hooks hooks, Backend* backend);
};
inline constexpr char kEntry[] = "cuvil_grpc_entry";

// Any thread; valid until the process ends. FailedPrecondition, one sentence, when the module is
// missing, cannot be loaded or comes from another build than this program.
absl::StatusOr<const Entry*> LoadModule();

}  // namespace cuvil::server::grpc
