// Who may do what. The front asks before it reads a body, for every route but the probes (and
// /metrics when an option opens it); the answer comes from whoever keeps the keys.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cuvil::server::http {

enum class Access : uint8_t {
  kUse,      // inference, models, tokens, documents; also every path that does not exist
  kMetrics,  // GET /metrics
  kAdmin,    // /admin/...
};

struct Credentials {
  // What came after "Authorization: Bearer ", untrimmed; empty when there was none, or no such
  // scheme. Valid during the call.
  std::string_view bearer;
  Access access = Access::kUse;
  std::string_view peer;  // "127.0.0.1:51234", for logs
};

// The tenant the key belongs to, or: Unauthenticated (401) for no or an unknown key,
// PermissionDenied (403) for a key without this access, ResourceExhausted (429) for a key over its
// quota. The sentence is sent to the client: it must not tell a wrong key from no key. Called on
// the I/O thread: no file, no lock that is held long. Empty: everybody is tenant "".
//
// After a tenant was returned, Observer::OnStarted and then, exactly once, OnEnded follow.
using Authorizer = std::function<absl::StatusOr<std::string>(const Credentials&)>;

}  // namespace cuvil::server::http
