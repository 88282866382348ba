// Errors as OpenAI's clients read them. Inside, an error is an absl::Status; the field it is about
// and OpenAI's code travel in its payloads. One place maps a status to what is sent.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cuvil::server::openai {

// OpenAI's code for a prompt that does not fit: clients cut their history when they see it.
inline constexpr char kContextLengthExceeded[] = "context_length_exceeded";

// InvalidArgument about a field of the request ("" for the request as a whole). `code` may be "".
absl::Status Invalid(std::string_view param, std::string_view message, std::string_view code = "");
// The same error, about `param`, unless it already names one.
absl::Status About(std::string_view param, const absl::Status& status);

struct ApiError {
  int status = 500;  // of HTTP
  std::string message, type, param, code;
  int retry_after_s = 0;     // sent when above 0
  bool never_retry = false;  // x-should-retry: false, or clients run a poison request three times
};

// What a client is told. Sentences about the server's inside (5xx) are replaced by ones that hold
// no path, address or type name; the log has the original.
ApiError ErrorOf(const absl::Status& status);

// {"error":{"message","type","param","code"}}, always all four keys.
std::string ErrorBody(const ApiError& error);

// Whether a sentence shows a path, an address or a C++ name.
bool ShowsInside(std::string_view message);

}  // namespace cuvil::server::openai
