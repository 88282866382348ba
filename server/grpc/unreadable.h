// What a client is told whose request gRPC could not parse. gRPC does not show such a call to its
// method and says UNIMPLEMENTED, which clients read as "no such method"; an interceptor is the one
// place that sees both that and the status on its way out.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/grpc/door.h"

namespace cuvil::server::grpc {

// Turns it into INVALID_ARGUMENT and reports it as rejected. The door outlives the server.
std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> UnreadableToInvalid(
    Door* door);

}  // namespace cuvil::server::grpc
