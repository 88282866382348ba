#include "server/http/admission.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "server/http/address.h"
#include "server/openai/error.h"

namespace cuvil::server::http {
namespace {

constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kNameListBytesMax = 2048;
// What a field's name may hold besides letters and digits.
constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";
constexpr char kRetryAfterDrain[] = "5";

Refusal Refuse(int status, std::string message, RejectReason reason, std::string code = "") {
  Refusal refusal;
  refusal.status = status;
  refusal.message = std::move(message);
  refusal.reason = reason;
  refusal.code = std::move(code);
  return refusal;
}

Refusal Later(std::string message, RejectReason reason) {
  Refusal refusal = Refuse(503, std::move(message), reason, "service_unavailable");
  refusal.headers.emplace_back("Retry-After", kRetryAfterDrain);
  return refusal;
}

std::string_view BearerOf(const RequestHead& head) {
  if (head.Count("authorization") != 1) return {};
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view value = head.Get("authorization");
  if (!absl::StartsWithIgnoreCase(Sv(value), Sv(kScheme))) return {};
  return value.substr(kScheme.size());
}

Refusal CheckPlace(const RequestHead& head, const AdmissionContext& context) {
  const Options& options = *context.options;
  if (head.Count("host") == 1 &&
      !HostAllowed(head.Get("host"), context.bound_to_loopback, options.allowed_hosts)) {
    return Refuse(403, "this server does not answer under that host name", RejectReason::kAuth,
                  "host_not_allowed");
  }
  // Browsers name the page on every request that could change something.
  const bool only_reads = head.method == Method::kGet || head.method == Method::kHead;
  if (!only_reads && head.Count("origin") > 0 &&
      (head.Count("origin") > 1 ||
       !OriginAllowed(head.Get("origin"), head.Get("host"), options.cors_origins))) {
    return Refuse(403, "pages of that origin may not call this server", RejectReason::kAuth,
                  "origin_not_allowed");
  }
  return {};
}

Refusal CheckMethod(const RequestHead& head, const Route& route) {
  if (route.endpoint == Endpoint::kNone) {
    return Refuse(404, "there is no such path", RejectReason::kNotFound, "unknown_url");
  }
  const bool fits = route.is_post ? head.method == Method::kPost
                                  : head.method == Method::kGet || head.method == Method::kHead;
  if (fits) return {};
  Refusal refusal = Refuse(405, "this path does not have that method", RejectReason::kInvalid,
                           "method_not_allowed");
  refusal.headers.emplace_back("Allow", AllowOf(route));
  return refusal;
}

bool IsJsonType(std::string_view value) {
  const absl::string_view type = absl::StripAsciiWhitespace(Sv(value.substr(0, value.find(';'))));
  return absl::EqualsIgnoreCase(type, "application/json");
}

// Whether a Content-Type leaves the body in the one encoding JSON has. Other parameters mean
// nothing.
bool IsUtf8(std::string_view value) {
  const std::vector<absl::string_view> parts = absl::StrSplit(Sv(value), ';');
  return std::all_of(parts.begin() + 1, parts.end(), [](absl::string_view part) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(pair.first), "charset")) return true;
    absl::string_view name = absl::StripAsciiWhitespace(pair.second);
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    return absl::EqualsIgnoreCase(name, "utf-8") || absl::EqualsIgnoreCase(name, "utf8");
  });
}

Refusal CheckContent(const RequestHead& head, const Route& route) {
  const auto unsupported = [](std::string message) {
    return Refuse(415, std::move(message), RejectReason::kInvalid, "unsupported_media_type");
  };
  if (head.Count("content-encoding") > 0 &&
      !absl::EqualsIgnoreCase(Sv(head.Get("content-encoding")), "identity")) {
    return unsupported("compressed bodies are not read; send the body as it is");
  }
  // An admin's POST needs no body, and then no type.
  if (route.access == Access::kAdmin && !head.has_body()) return {};
  if (!route.is_post) return {};
  if (head.Count("content-type") != 1 || !IsJsonType(head.Get("content-type"))) {
    return unsupported("the body must be sent as Content-Type: application/json");
  }
  if (!IsUtf8(head.Get("content-type"))) {
    return unsupported("the body must be UTF-8; leave the charset out of Content-Type");
  }
  return {};
}

// Whoever watches the server must see its end and its overload, not only its good times.
bool AnswersAlways(const Route& route) {
  return route.is_probe || route.endpoint == Endpoint::kMetrics;
}

// A list of field names that can stand in an answer as it is.
bool IsNameList(std::string_view value) {
  if (value.empty() || value.size() > kNameListBytesMax) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(Sv(value), ',');
  return std::ranges::all_of(parts, [](absl::string_view part) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return absl::ascii_isalnum(c) || kTokenMarks.find(static_cast<char>(c)) != kTokenMarks.npos;
    });
  });
}

// The page's origin is listed: it may send what it likes, which for clients of OpenAI's is a dozen
// fields with names of their own.
Response Preflight(const RequestHead& head) {
  const std::string_view asked = head.Get("access-control-request-headers");
  Response response;
  response.status = 204;
  response.fields = {
      {"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"},
      {"Access-Control-Allow-Headers",
       IsNameList(asked) ? std::string(asked)
                         : "Authorization, Content-Type, x-request-id, x-request-timeout"},
      {"Access-Control-Max-Age", "600"}};
  return response;
}

RejectReason ReasonOf(absl::StatusCode code) {
  return code == absl::StatusCode::kResourceExhausted ? RejectReason::kQuota : RejectReason::kAuth;
}

// Fills refusal when the caller may not.
void Authorise(const RequestHead& head, const AdmissionContext& context, Admission* admission) {
  const Route& route = *admission->match.route;
  const bool open =
      route.is_probe || (route.endpoint == Endpoint::kMetrics && context.options->open_metrics);
  if (open || !*context.authorizer) {
    admission->authorised = true;
    return;
  }
  // What does not exist under /admin/ is an admin's business too.
  const bool admin_path = head.path.starts_with("/admin");
  const Access access = admin_path ? Access::kAdmin : route.access;
  absl::StatusOr<std::string> tenant =
      (*context.authorizer)({.bearer = BearerOf(head), .access = access, .peer = context.peer});
  if (tenant.ok()) {
    admission->authorised = true;
    admission->tenant = *std::move(tenant);
    return;
  }
  const Response response = ErrorResponse(tenant.status());
  const openai::ApiError error = openai::ErrorOf(tenant.status());
  admission->refusal =
      Refuse(error.status, error.message, ReasonOf(tenant.status().code()), error.code);
  admission->refusal.headers = response.fields;
}

}  // namespace

Refusal ShuttingDown() {
  return Later("the server is shutting down; try another or again later", RejectReason::kDraining);
}

std::string_view AcceptableRequestId(const RequestHead& head) {
  if (head.Count("x-request-id") != 1) return {};
  const std::string_view id = head.Get("x-request-id");
  if (id.empty() || id.size() > kRequestIdBytesMax) return {};
  const bool plain = std::ranges::all_of(id, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
  return plain ? id : std::string_view();
}

Admission Admit(const RequestHead& head, const AdmissionContext& context) {
  Admission admission;
  admission.match = FindRoute(head.path);
  if (admission.match.route->endpoint == Endpoint::kMetrics && !context.metrics_exist) {
    admission.match = FindRoute("");
  }
  const Route& route = *admission.match.route;
  const bool has_origin = head.Count("origin") == 1;
  if (has_origin && OriginListed(head.Get("origin"), context.options->cors_origins)) {
    admission.cors_origin = std::string(head.Get("origin"));
  }
  admission.refusal = CheckPlace(head, context);
  if (admission.refusal.refused()) return admission;

  const bool is_preflight = head.method == Method::kOptions && !admission.cors_origin.empty() &&
                            head.Count("access-control-request-method") > 0;
  if (is_preflight) {
    admission.kind = Admission::Kind::kAnswered;
    admission.answer = Preflight(head);
    return admission;
  }
  // A drain waits for no body, whoever it is for.
  const bool answers = AnswersAlways(route) && !(context.draining && head.has_body());
  if (!answers && (context.draining || context.over_connection_limit)) {
    admission.must_close = true;
    admission.refusal =
        context.draining
            ? ShuttingDown()
            : Later(absl::StrCat("the server has its ", context.options->connections_max,
                                 " connections; try again later"),
                    RejectReason::kConnections);
    return admission;
  }
  Authorise(head, context, &admission);
  if (admission.refusal.refused()) return admission;
  if (head.method == Method::kOptions && (route.endpoint != Endpoint::kNone || head.path == "*")) {
    admission.kind = Admission::Kind::kAnswered;
    admission.answer.status = 204;
    admission.answer.fields = {{"Allow", AllowOf(route)}};
    return admission;
  }
  admission.refusal = CheckMethod(head, route);
  if (!admission.refusal.refused()) admission.refusal = CheckContent(head, route);
  if (!admission.refusal.refused()) admission.kind = Admission::Kind::kAdmitted;
  return admission;
}

}  // namespace cuvil::server::http
