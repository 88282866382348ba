#include "server/http/response.h"

#include "absl/time/time.h"
#include "server/openai/error.h"

namespace cuvil::server::http {
namespace {

struct Phrase {
  int status;
  const char* text;
};
constexpr Phrase kPhrases[] = {
    {200, "OK"},
    {202, "Accepted"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

std::string CommonHead(int status, std::string_view content_type, const Envelope& envelope) {
  std::string head = absl::StrCat("HTTP/1.1 ", status, " ", Sv(ReasonPhrase(status)),
                                  "\r\nDate: ", Sv(envelope.date),
                                  "\r\nx-request-id: ", envelope.request_id, "\r\n");
  if (!content_type.empty()) absl::StrAppend(&head, "Content-Type: ", Sv(content_type), "\r\n");
  absl::StrAppend(&head, "X-Content-Type-Options: nosniff\r\n");
  if (!envelope.origin.empty()) {
    absl::StrAppend(&head, "Access-Control-Allow-Origin: ", Sv(envelope.origin),
                    "\r\nAccess-Control-Expose-Headers: x-request-id, retry-after, "
                    "x-should-retry\r\n"
                    "Vary: Origin\r\n");
  }
  if (!envelope.keep_alive) {
    absl::StrAppend(&head, "Connection: close\r\n");
  } else if (!envelope.is_http11) {
    absl::StrAppend(&head, "Connection: keep-alive\r\n");
  }
  return head;
}

const char* TypeOf(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 503) return "service_unavailable";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

std::string_view ReasonPhrase(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) return phrase.text;
  }
  return "Unknown";
}

std::vector<int> StatusCodes() {
  std::vector<int> codes;
  for (const Phrase& phrase : kPhrases) codes.push_back(phrase.status);
  return codes;
}

std::string HttpDate(int64_t unix_seconds) {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::FromUnixSeconds(unix_seconds),
                          absl::UTCTimeZone());
}

Response ErrorResponse(const absl::Status& status) {
  const openai::ApiError error = openai::ErrorOf(status);
  Response response;
  response.status = error.status;
  response.body = openai::ErrorBody(error);
  response.error = std::string(status.message());
  if (error.retry_after_s > 0) {
    response.fields.emplace_back("Retry-After", absl::StrCat(error.retry_after_s));
  }
  if (error.never_retry) response.fields.emplace_back("x-should-retry", "false");
  if (error.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Response RefusalResponse(const Refusal& refusal) {
  openai::ApiError error;
  error.status = refusal.status;
  error.message = refusal.message;
  error.type = TypeOf(refusal.status);
  error.code = refusal.code;
  Response response;
  response.status = refusal.status;
  response.body = openai::ErrorBody(error);
  response.error = refusal.message;
  response.fields = refusal.headers;
  return response;
}

std::string WholeHead(const Response& response, const Envelope& envelope) {
  const bool no_content = response.status == 204;
  std::string head = CommonHead(response.status, no_content ? "" : response.content_type, envelope);
  for (const auto& [name, value] : response.fields) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!no_content) absl::StrAppend(&head, "Content-Length: ", response.body.size(), "\r\n");
  head += "\r\n";
  return head;
}

std::string StreamHead(std::string_view content_type, const Envelope& envelope) {
  std::string head = CommonHead(200, content_type, envelope);
  absl::StrAppend(&head, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
  if (envelope.is_http11) absl::StrAppend(&head, "Transfer-Encoding: chunked\r\n");
  head += "\r\n";
  return head;
}

void AppendChunk(std::string_view bytes, std::string* out) {
  if (bytes.empty()) return;  // an empty chunk would end the body
  absl::StrAppend(out, absl::Hex(bytes.size()), "\r\n", Sv(bytes), "\r\n");
}

}  // namespace cuvil::server::http
