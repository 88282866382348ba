#include "server/http/observer.h"

namespace cuvil::server::http {

std::string_view RejectName(RejectReason reason) {
  switch (reason) {
    case RejectReason::kProtocol:
      return "protocol";
    case RejectReason::kAuth:
      return "auth";
    case RejectReason::kQuota:
      return "quota";
    case RejectReason::kNotFound:
      return "not_found";
    case RejectReason::kInvalid:
      return "invalid";
    case RejectReason::kTooLarge:
      return "too_large";
    case RejectReason::kTooLong:
      return "too_long";
    case RejectReason::kQueueFull:
      return "queue_full";
    case RejectReason::kUnavailable:
      return "unavailable";
    case RejectReason::kDraining:
      return "draining";
    case RejectReason::kConnections:
      return "connections";
    case RejectReason::kTimeout:
      return "timeout";
  }
  return "invalid";
}

}  // namespace cuvil::server::http
