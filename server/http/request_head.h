// The head of one HTTP/1.x request, strictly: what two servers in a row could read differently is
// refused. Boost.Beast reads the syntax; what it lets pass and should not is refused here before or
// after. No sockets; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/observer.h"

namespace cuvil::server::http {

// Why a request is not served. status 0: it is.
struct Refusal {
  int status = 0;
  std::string message;
  std::string code;  // OpenAI's, or ""
  RejectReason reason = RejectReason::kProtocol;
  std::vector<std::pair<std::string, std::string>> headers;

  bool refused() const { return status != 0; }
};

enum class Method : uint8_t { kGet, kHead, kPost, kOptions, kOther };
std::string_view MethodName(Method method);

struct RequestHead {
  Method method = Method::kOther;
  std::string path;  // as sent: nothing is decoded or normalised; without the query
  bool is_http11 = true;
  bool keep_alive = true;
  bool chunked = false;
  bool has_length = false;
  uint64_t length = 0;
  bool expects_continue = false;
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case

  // The value of the only field of that name; empty when there is none.
  std::string_view Get(std::string_view name) const;
  size_t Count(std::string_view name) const;
  bool has_body() const { return chunked || length > 0; }
};

// `raw` ends with the empty line. Never throws.
Refusal ParseHead(std::string_view raw, RequestHead* head);

// More header lines than any client sends.
inline constexpr size_t kFieldsMax = 128;
inline constexpr size_t kTargetBytesMax = 8192;

}  // namespace cuvil::server::http
