// The paths that exist, in one table: what they are called in metrics, which methods they have and
// who may use them. Paths are compared byte for byte as they were sent: what is spelled otherwise
// ("//v1", "/v1/./models", "/%761") does not exist.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "server/http/authorizer.h"
#include "server/http/request_head.h"

namespace cuvil::server::http {

enum class Endpoint : uint8_t {
  kChat,
  kCompletion,
  kEmbedding,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,
  kOpenApi,
  kVersion,
  kLive,
  kReady,
  kStartup,
  kHealth,
  kMetrics,
  kAdminModels,
  kAdminModel,
  kNone,  // no such path
};

struct Route {
  Endpoint endpoint;
  const char* pattern;  // "/v1/models/{id}"; a closed set, fit for labels
  bool is_post;         // else GET, and with it HEAD
  bool is_probe;        // needs no key, is answered while draining and over the connection limit
  Access access;
  const char* doc;
};

absl::Span<const Route> Routes();

struct Match {
  const Route* route;    // never null: kNone's pattern is "other"
  std::string argument;  // the decoded {id} or {name}
  std::string action;    // of /admin/models/{name}/{action}
};
Match FindRoute(std::string_view path);

std::string AllowOf(const Route& route);  // "GET, HEAD, OPTIONS"

// %XX decoded; nothing when an escape is broken or the text holds a control byte or broken UTF-8.
std::optional<std::string> PercentDecode(std::string_view text);

}  // namespace cuvil::server::http
