// From an admitted request to its answer: by the route. On the I/O thread; what takes longer than a
// look-up goes to the pool or to a model.
#pragma once

#include <memory>

#include "server/http/connection.h"

namespace cuvil::server::http {

// The connection's exchange is whole. Exactly one answer follows, unless the client leaves.
void Handle(Front* front, const std::shared_ptr<Connection>& connection);

// Answers with an error and tells the observer why the request was turned away.
void RespondError(Front* front, Connection* connection, const absl::Status& status);

}  // namespace cuvil::server::http
