// Statuses as gRPC's clients read them. The sentences are those of HTTP.
#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"
#include "server/http/observer.h"

namespace grpc {
class ServerContextBase;
}

namespace cuvil::server::grpc {

// The code and the sentence a client is told, without the server's inside. What HTTP answers with
// 400 is INVALID_ARGUMENT, what it answers with 500 INTERNAL.
::grpc::Status ToGrpc(const absl::Status& status);

// Trailing metadata of an error: the field it is about, its code, and when to try again.
void AddErrorMetadata(const absl::Status& status, ::grpc::ServerContextBase* context);

// Why a call that no model worked on was turned away.
http::RejectReason ReasonOf(const absl::Status& status);

}  // namespace cuvil::server::grpc
