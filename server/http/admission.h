// Decides on a request by its head alone, before a byte of its body is read: whether it is for us,
// whether the path and method exist, whether the caller may. No sockets.
#pragma once

#include <string>
#include <string_view>

#include "server/http/options.h"
#include "server/http/request_head.h"
#include "server/http/response.h"
#include "server/http/routes.h"

namespace cuvil::server::http {

struct AdmissionContext {
  const Options* options = nullptr;
  const Authorizer* authorizer = nullptr;
  bool bound_to_loopback = true;
  bool draining = false;
  bool metrics_exist = true;
  bool over_connection_limit = false;
  std::string_view peer;
};

struct Admission {
  enum class Kind : uint8_t {
    kRefused,   // send refusal
    kAnswered,  // send answer: OPTIONS
    kAdmitted,  // read the body
  };
  Kind kind = Kind::kRefused;
  Match match;
  // Authorisation was given: Observer::OnStarted is due, also when kind is not kAdmitted.
  bool authorised = false;
  std::string tenant;
  std::string cors_origin;  // to be echoed, in errors too
  Refusal refusal;
  Response answer;
  bool must_close = false;
};

// What requests are told that a drain does not wait for.
Refusal ShuttingDown();

Admission Admit(const RequestHead& head, const AdmissionContext& context);

// x-request-id as sent, if it is fit to be shown in headers and logs; else "".
std::string_view AcceptableRequestId(const RequestHead& head);

}  // namespace cuvil::server::http
