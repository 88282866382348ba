#include "cli/http_client.h"

#include <poll.h>

#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "cli/process.h"

namespace cuvil::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

// An answer's bytes; more than any list of models or any one answer.
constexpr uint64_t kReplyBytesMax = uint64_t{256} << 20;
constexpr size_t kPieceBytes = size_t{64} << 10;  // of a stream, read at a time
// A signal that comes between a look at its flag and the wait for bytes is seen this much later.
constexpr int kLookMs = 100;

// The server's sentence with a status of the same meaning.
absl::Status StatusOf(unsigned code, const std::string& body) {
  std::string message = absl::StrCat("the server answered with ", code);
  if (const auto json = ParseJson(body); json.ok() && json->is_object()) {
    const Json* error = json->contains("error") ? &(*json)["error"] : nullptr;
    if (error != nullptr && error->is_object() && error->contains("message") &&
        (*error)["message"].is_string())
      message = (*error)["message"].get<std::string>();
  }
  switch (code) {
    case 400:
    case 413:
    case 415:
    case 422:
      return absl::InvalidArgumentError(message);
    case 401:
      return absl::UnauthenticatedError(message + " (give a key with --key or CUVIL_API_KEY)");
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 429:
    case 503:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status Unreachable(const std::string& host, const std::string& port, const error_code& e) {
  return absl::UnavailableError(absl::StrCat("no server answers at ", host, ":", port, " (",
                                             e.message(), "); start one with cuvil serve"));
}

// Of a request or an answer, once a server was there.
absl::Status CutOff(const char* what, const error_code& e) {
  if (e == http::error::body_limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer is over ", kReplyBytesMax, " bytes; ask for less"));
  }
  return absl::UnavailableError(absl::StrCat("the ", what, " was cut off: ", e.message(),
                                             "; the server may have been stopped"));
}

}  // namespace

void AddRemoteOptions(CLI::App* app, Remote* remote) {
  app->add_option("--url", remote->url, "The server")->type_name("URL")->capture_default_str();
  app->add_option("--key", remote->key, "API key; default: CUVIL_API_KEY")->type_name("KEY");
}

absl::StatusOr<HttpClient> HttpClient::Create(const Remote& remote) {
  HttpClient client;
  std::string_view rest = remote.url;
  constexpr std::string_view kScheme = "http://";
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("--url is '", remote.url, "'; it takes http://HOST:PORT"));
  };
  if (!rest.starts_with(kScheme)) return wrong();
  rest.remove_prefix(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  // An IPv6 address stands in brackets.
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  client.host_ = std::string(rest.substr(0, colon));
  client.port_ = colon == std::string_view::npos ? "80" : std::string(rest.substr(colon + 1));
  int port = 0;
  if (client.host_.empty() || client.host_.find('/') != std::string::npos ||
      !absl::SimpleAtoi(client.port_, &port) || port < 1 || port > 65535)
    return wrong();
  client.key_ = remote.key;
  if (const char* key = std::getenv("CUVIL_API_KEY"); client.key_.empty() && key != nullptr)
    client.key_ = key;
  for (const char c : client.key_) {
    if (c < 0x21 || c > 0x7e)
      return absl::InvalidArgumentError("the API key holds a character that no key has");
  }
  return client;
}

namespace {

// A connection with a request sent and the head of the answer read.
struct Exchange {
  asio::io_context context;
  asio::ip::tcp::socket socket{context};
  boost::beast::flat_buffer buffer;
};

// A socket whose reads end with `interrupted` once *cancel is set, whether or not the signal that
// sets it hits one of them.
class CancellableReads {
 public:
  CancellableReads(asio::ip::tcp::socket* socket, const std::atomic<bool>* cancel)
      : socket_(socket), cancel_(cancel) {}

  template <typename Buffers>
  size_t read_some(const Buffers& buffers, error_code& e) {
    for (;;) {
      if (cancel_->load()) {
        e = asio::error::interrupted;
        return 0;
      }
      pollfd wait{socket_->native_handle(), POLLIN, 0};
      if (poll(&wait, 1, kLookMs) <= 0) continue;  // in vain, or a signal
      const size_t size = socket_->read_some(buffers, e);
      if (e != asio::error::interrupted) return size;
    }
  }
  // Beast asks that it be declared.
  template <typename Buffers>
  size_t read_some(const Buffers& buffers);

 private:
  asio::ip::tcp::socket* socket_;
  const std::atomic<bool>* cancel_;
};

absl::Status Connect(const std::string& host, const std::string& port, Exchange& x) {
  error_code e;
  std::string name = host;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  asio::ip::tcp::resolver resolver(x.context);
  const auto found = resolver.resolve(name, port, e);
  if (e) return Unreachable(host, port, e);
  asio::connect(x.socket, found, e);
  return e ? Unreachable(host, port, e) : absl::OkStatus();
}

http::request<http::string_body> RequestOf(const std::string& method, const std::string& host,
                                           const std::string& port, const std::string& path,
                                           const std::string& key, const std::string& body) {
  http::request<http::string_body> r{method == "GET" ? http::verb::get : http::verb::post, path,
                                     11};
  r.set(http::field::host, absl::StrCat(host, ":", port));
  r.set(http::field::user_agent, "cuvil");
  r.set(http::field::connection, "close");
  if (!key.empty()) r.set(http::field::authorization, absl::StrCat("Bearer ", key));
  if (!body.empty()) r.set(http::field::content_type, "application/json");
  r.body() = body;
  r.prepare_payload();
  return r;
}

}  // namespace

absl::StatusOr<Json> HttpClient::Ask(const std::string& method, const std::string& path,
                                     const std::string& body) const {
  Exchange x;
  RETURN_IF_ERROR(Connect(host_, port_, x));
  error_code e;
  http::write(x.socket, RequestOf(method, host_, port_, path, key_, body), e);
  if (e) return CutOff("request", e);
  http::response_parser<http::string_body> parser;
  parser.body_limit(kReplyBytesMax);
  http::read(x.socket, x.buffer, parser, e);
  if (e) return CutOff("answer", e);
  const auto& reply = parser.get();
  if (reply.result_int() / 100 != 2) return StatusOf(reply.result_int(), reply.body());
  return ParseJson(reply.body());
}

absl::StatusOr<Json> HttpClient::Get(const std::string& path) const { return Ask("GET", path, ""); }
absl::StatusOr<Json> HttpClient::Post(const std::string& path, const Json& body) const {
  return Ask("POST", path, body.is_null() ? "" : WriteJson(body));
}

absl::Status HttpClient::Stream(const std::string& path, const Json& body,
                                const std::function<bool(const Json& event)>& on_event) const {
  Exchange x;
  RETURN_IF_ERROR(Connect(host_, port_, x));
  error_code e;
  http::write(x.socket, RequestOf("POST", host_, port_, path, key_, WriteJson(body)), e);
  if (e) return CutOff("request", e);
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(kReplyBytesMax);
  // Before this, Ctrl-C ends the program: a server that takes no request must not hold it.
  const AnswerScope answer;
  CancellableReads reads(&x.socket, answer.cancel());
  http::read_header(reads, x.buffer, parser, e);
  if (answer.cancel()->load()) return absl::OkStatus();
  if (e) return CutOff("answer", e);
  std::string piece(kPieceBytes, 0), text;
  const unsigned code = parser.get().result_int();
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    http::read_some(reads, x.buffer, parser, e);
    if (answer.cancel()->load()) return absl::OkStatus();
    if (e == http::error::need_buffer) e = {};
    if (e) return CutOff("answer", e);
    text.append(piece, 0, piece.size() - parser.get().body().size);
    if (code / 100 != 2) continue;
    for (size_t end; (end = text.find("\n\n")) != std::string::npos; text.erase(0, end + 2)) {
      constexpr std::string_view kData = "data: ";
      const std::string_view event = std::string_view(text).substr(0, end);
      if (!event.starts_with(kData)) continue;  // a comment
      const std::string data(event.substr(kData.size()));
      if (data == "[DONE]") return absl::OkStatus();
      ASSIGN_OR_RETURN(const Json json, ParseJson(data));
      if (json.is_object() && json.contains("error")) return StatusOf(500, data);
      if (!on_event(json)) return absl::OkStatus();
    }
  }
  if (code / 100 != 2) return StatusOf(code, text);
  return absl::UnavailableError("the answer ended early; the server may have been stopped");
}

}  // namespace cuvil::cli
