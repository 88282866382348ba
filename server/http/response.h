// What is sent back: a whole body or the head of a stream, and the bytes of their heads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/http/request_head.h"

namespace cuvil::server::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Fields fields;
  std::string error;  // for the log
};

// An OpenAI error body with its headers (Retry-After, x-should-retry).
Response ErrorResponse(const absl::Status& status);
Response RefusalResponse(const Refusal& refusal);

// What all answers to one request share.
struct Envelope {
  std::string request_id;
  std::string_view date;    // of the Date header
  std::string_view origin;  // to be echoed for CORS; "" for none
  bool is_http11 = true;
  bool keep_alive = true;
};

// The head with its empty line. A response without a body (HEAD) has its length all the same.
std::string WholeHead(const Response& response, const Envelope& envelope);
// Of a body of unknown length: chunked, or until the close in HTTP/1.0.
std::string StreamHead(std::string_view content_type, const Envelope& envelope);

// One chunk of a chunked body.
void AppendChunk(std::string_view bytes, std::string* out);

std::string_view ReasonPhrase(int status);
// Every status that the server answers with, or notes of a client that left (499).
std::vector<int> StatusCodes();
// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string HttpDate(int64_t unix_seconds);

}  // namespace cuvil::server::http
