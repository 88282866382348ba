#include "server/openai/error.h"

#include <optional>

#include "absl/strings/cord.h"
#include "server/api/param.h"
#include "server/api/retry.h"
#include "server/openai/json_writer.h"

namespace cuvil::server::openai {
namespace {

constexpr char kCodeUrl[] = "cuvil/code";
// Where the error does not know better. Short enough that a queue which has emptied is found soon,
// long enough not to hammer a full one.
constexpr int kRetryAfterBusy = 1;
// Loading takes seconds.
constexpr int kRetryAfterUnavailable = 5;

std::string CodeOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kCodeUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

bool IsPathByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

struct Row {
  absl::StatusCode code;
  int http;
  const char* type;
  const char* error_code;  // when the status names none
  const char* instead;     // sentence for a message that shows the inside; null: keep any message
};

constexpr char kInternal[] = "the server failed to answer this request; its log has the details";
constexpr char kUnavailable[] = "the model is not available now; try again later";
constexpr Row kRows[] = {
    {absl::StatusCode::kInvalidArgument, 400, "invalid_request_error", "", nullptr},
    {absl::StatusCode::kOutOfRange, 400, "invalid_request_error", "", nullptr},
    {absl::StatusCode::kFailedPrecondition, 400, "invalid_request_error", "", nullptr},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error", "invalid_api_key", nullptr},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error", "permission_denied", nullptr},
    {absl::StatusCode::kNotFound, 404, "invalid_request_error", "model_not_found", nullptr},
    {absl::StatusCode::kAlreadyExists, 409, "invalid_request_error", "conflict", nullptr},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded",
     "the server is busy; try again later"},
    {absl::StatusCode::kCancelled, 499, "request_cancelled", "cancelled",
     "the request was cancelled"},
    {absl::StatusCode::kUnimplemented, 501, "invalid_request_error", "not_supported", nullptr},
    {absl::StatusCode::kUnavailable, 503, "service_unavailable", "service_unavailable",
     kUnavailable},
    {absl::StatusCode::kDeadlineExceeded, 504, "timeout_error", "deadline_exceeded",
     "the request's time was over before it was finished"},
};
constexpr Row kOtherwise = {absl::StatusCode::kInternal, 500, "server_error", "internal_error",
                            kInternal};

const Row& RowOf(absl::StatusCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return row;
  }
  return kOtherwise;
}

}  // namespace

absl::Status Invalid(std::string_view param, std::string_view message, std::string_view code) {
  absl::Status status = absl::InvalidArgumentError(Sv(message));
  if (!param.empty()) status = WithParam(param, std::move(status));
  if (!code.empty()) status.SetPayload(kCodeUrl, absl::Cord(Sv(code)));
  return status;
}

absl::Status About(std::string_view param, const absl::Status& status) {
  return WithParam(param, status);
}

bool ShowsInside(std::string_view message) {
  if (message.find("::") != std::string_view::npos) return true;
  for (size_t i = 0; i + 1 < message.size(); ++i) {
    const bool starts_word = i == 0 || !IsPathByte(message[i - 1]);
    if (!starts_word) continue;
    if (message[i] == '/' && IsPathByte(message[i + 1])) return true;
    if (message[i] == '0' && message[i + 1] == 'x') return true;
  }
  return false;
}

ApiError ErrorOf(const absl::Status& status) {
  const Row& row = RowOf(status.code());
  ApiError error;
  error.status = row.http;
  error.type = row.type;
  error.message = std::string(status.message());
  error.param = ParamOf(status);
  error.code = CodeOf(status);
  if (error.code.empty()) error.code = row.error_code;
  const bool unsaid = error.message.empty() || row.http == 500;
  if (row.instead != nullptr && (unsaid || ShowsInside(error.message))) error.message = row.instead;
  const int said = RetryAfterS(status);
  if (row.http == 429) error.retry_after_s = said > 0 ? said : kRetryAfterBusy;
  if (row.http == 503) error.retry_after_s = said > 0 ? said : kRetryAfterUnavailable;
  error.never_retry = row.http == 500 || row.http == 504;
  return error;
}

std::string ErrorBody(const ApiError& error) {
  std::string body;
  JsonWriter json(&body);
  const auto text_or_null = [&json](const std::string& text) {
    if (text.empty()) {
      json.Null();
    } else {
      json.String(text);
    }
  };
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(error.message);
  json.Key("type").String(error.type);
  text_or_null((json.Key("param"), error.param));
  text_or_null((json.Key("code"), error.code));
  json.EndObject().EndObject();
  return body;
}

}  // namespace cuvil::server::openai
