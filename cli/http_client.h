// The client side of the server's HTTP interface, for commands that talk to a daemon. Plain HTTP
// to a host and port; blocking; one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "base/status.h"

namespace cuvil::cli {

struct Remote {
  std::string url = "http://127.0.0.1:8000";
  std::string key;  // empty: CUVIL_API_KEY
};
// --url and --key.
void AddRemoteOptions(CLI::App* app, Remote* remote);

class HttpClient {
 public:
  // InvalidArgument for a URL that is not http://HOST[:PORT].
  static absl::StatusOr<HttpClient> Create(const Remote& remote);

  // Errors: Unavailable when nobody answers there or an answer is cut off; what the server refuses
  // comes back with its own sentence and a status of the same meaning. `body` may be null.
  absl::StatusOr<Json> Get(const std::string& path) const;
  absl::StatusOr<Json> Post(const std::string& path, const Json& body) const;
  // A streamed answer: each event's data, until [DONE], Ctrl-C or `on_event` returns false.
  // REQUIRES: no AnswerScope; the stream has one from the end of the request on.
  absl::Status Stream(const std::string& path, const Json& body,
                      const std::function<bool(const Json& event)>& on_event) const;

 private:
  HttpClient() = default;
  absl::StatusOr<Json> Ask(const std::string& method, const std::string& path,
                           const std::string& body) const;

  std::string host_, port_, key_;
};

}  // namespace cuvil::cli
