#include "server/http/request_head.h"

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <exception>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"

namespace cuvil::server::http {
namespace {

namespace beast = boost::beast;
using Parser = beast::http::request_parser<beast::http::empty_body>;

// Below 2^63, so no sum of sizes overflows.
constexpr size_t kLengthDigitsMax = 18;

Refusal Bad(std::string message, int status = 400) {
  Refusal refusal;
  refusal.status = status;
  refusal.message = std::move(message);
  return refusal;
}

// What Beast accepts and a request may not contain: folded lines, bare line ends, control bytes.
Refusal CheckLines(std::string_view raw) {
  size_t lines = 0;
  size_t at = 0;
  while (at < raw.size()) {
    const size_t end = raw.find("\r\n", at);
    if (end == std::string_view::npos) return Bad("the request's head has a broken line");
    const std::string_view line = raw.substr(at, end - at);
    if (lines > 0 && !line.empty() && (line[0] == ' ' || line[0] == '\t')) {
      return Bad("a header line may not be folded");
    }
    for (const char c : line) {
      const auto byte = static_cast<unsigned char>(c);
      if ((byte < 0x20 && c != '\t') || byte == 0x7F) {
        return Bad("the request's head holds a control byte");
      }
    }
    if (lines == 0 && line.size() > kTargetBytesMax)
      return Bad(absl::StrCat("the request line has ", line.size(), " bytes, and ", kTargetBytesMax,
                              " is the most"),
                 414);
    at = end + 2;
    ++lines;
  }
  // The request line and the empty one are no fields.
  if (lines > kFieldsMax + 2) {
    return Bad(absl::StrCat("the request has ", lines - 2, " header lines, and ", kFieldsMax,
                            " is the most"),
               431);
  }
  return {};
}

Refusal CheckVersion(std::string_view raw) {
  const std::string_view line = raw.substr(0, raw.find("\r\n"));
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return Bad("the request line is broken");
  const std::string_view version = line.substr(space + 1);
  if (version == "HTTP/1.1" || version == "HTTP/1.0") return {};
  if (version.starts_with("HTTP/") && version.size() <= 8) {
    return Bad("only HTTP/1.1 and HTTP/1.0 are spoken here", 505);
  }
  return Bad("the request line is broken");
}

Method MethodOf(beast::http::verb verb) {
  switch (verb) {
    case beast::http::verb::get:
      return Method::kGet;
    case beast::http::verb::head:
      return Method::kHead;
    case beast::http::verb::post:
      return Method::kPost;
    case beast::http::verb::options:
      return Method::kOptions;
    default:
      return Method::kOther;
  }
}

// How long the body is: one way to say it, or none.
Refusal CheckFraming(RequestHead* head) {
  const size_t encodings = head->Count("transfer-encoding");
  const size_t lengths = head->Count("content-length");
  if (encodings > 0) {
    if (!head->is_http11) return Bad("Transfer-Encoding is not part of HTTP/1.0");
    if (lengths > 0) return Bad("Transfer-Encoding and Content-Length exclude each other");
    if (encodings > 1 || !absl::EqualsIgnoreCase(Sv(head->Get("transfer-encoding")), "chunked")) {
      return Bad("the only Transfer-Encoding served is chunked", 501);
    }
    head->chunked = true;
  }
  if (lengths > 1) return Bad("Content-Length is given twice");
  if (lengths == 1) {
    const std::string_view text = head->Get("content-length");
    uint64_t value = 0;
    if (text.empty()) return Bad("Content-Length is empty");
    if (text.size() > kLengthDigitsMax) {
      return Bad(absl::StrCat("Content-Length has ", text.size(), " digits, and ", kLengthDigitsMax,
                              " is the most"),
                 413);
    }
    for (const char c : text) {
      if (c < '0' || c > '9') return Bad("Content-Length is not a number");
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    head->has_length = true;
    head->length = value;
  }
  return {};
}

Refusal CheckHostField(const RequestHead& head) {
  const size_t hosts = head.Count("host");
  if (hosts > 1) return Bad("the request has more than one Host");
  if (hosts == 0 && head.is_http11) return Bad("the request has no Host");
  return {};
}

Refusal CheckExpect(RequestHead* head) {
  const size_t count = head->Count("expect");
  if (count == 0) return {};
  if (count > 1 || !absl::EqualsIgnoreCase(Sv(head->Get("expect")), "100-continue")) {
    return Bad("the only Expect served is 100-continue", 417);
  }
  head->expects_continue = head->is_http11;
  return {};
}

Refusal TakeTarget(std::string_view target, RequestHead* head) {
  const bool is_star = target == "*" && head->method == Method::kOptions;
  if (!is_star && (target.empty() || target[0] != '/')) {
    return Bad("the request's target must be a path");
  }
  head->path = std::string(target.substr(0, target.find('?')));
  return {};
}

bool HasToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const absl::string_view one = absl::StripAsciiWhitespace(Sv(list.substr(0, comma)));
    if (absl::EqualsIgnoreCase(one, Sv(token))) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

Refusal RunBeast(std::string_view raw, RequestHead* head) {
  Parser parser;
  parser.body_limit(boost::none);
  // Ours is the limit; Beast's only has to be above it.
  parser.header_limit(static_cast<uint32_t>(raw.size() + 1024));
  beast::error_code error;
  parser.put(boost::asio::const_buffer(raw.data(), raw.size()), error);
  if (error && error != beast::http::error::need_more) return Bad("the request's head is broken");
  if (!parser.is_header_done()) return Bad("the request's head is broken");
  const auto& message = parser.get();
  head->method = MethodOf(message.method());
  head->is_http11 = message.version() == 11;
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    head->fields.emplace_back(absl::AsciiStrToLower(absl::string_view(name.data(), name.size())),
                              std::string(value.data(), value.size()));
  }
  return TakeTarget(std::string_view(message.target().data(), message.target().size()), head);
}

}  // namespace

std::string_view MethodName(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kOptions:
      return "OPTIONS";
    case Method::kOther:
      break;
  }
  return "other";
}

std::string_view RequestHead::Get(std::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (field == name) return value;
  }
  return {};
}

size_t RequestHead::Count(std::string_view name) const {
  size_t count = 0;
  for (const auto& [field, value] : fields) count += field == name ? 1 : 0;
  return count;
}

Refusal ParseHead(std::string_view raw, RequestHead* head) {
  if (Refusal r = CheckLines(raw); r.refused()) return r;
  if (Refusal r = CheckVersion(raw); r.refused()) return r;
  try {
    if (Refusal r = RunBeast(raw, head); r.refused()) return r;
  } catch (const std::exception&) {
    return Bad("the request's head is broken");
  }
  if (Refusal r = CheckHostField(*head); r.refused()) return r;
  if (Refusal r = CheckFraming(head); r.refused()) return r;
  if (Refusal r = CheckExpect(head); r.refused()) return r;
  const std::string_view connection = head->Get("connection");
  head->keep_alive =
      head->is_http11 ? !HasToken(connection, "close") : HasToken(connection, "keep-alive");
  return {};
}

}  // namespace cuvil::server::http
