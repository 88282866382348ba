#include "server/http/routes.h"

#include "text/utf8.h"

namespace cuvil::server::http {
namespace {

constexpr size_t kNameBytesMax = 512;

constexpr Route kRoutes[] = {
    {Endpoint::kChat, "/v1/chat/completions", true, false, Access::kUse,
     "A conversation's next turn."},
    {Endpoint::kCompletion, "/v1/completions", true, false, Access::kUse, "A text's continuation."},
    {Endpoint::kEmbedding, "/v1/embeddings", true, false, Access::kUse, "Vectors of texts."},
    {Endpoint::kTokenize, "/tokenize", true, false, Access::kUse, "A text's tokens."},
    {Endpoint::kDetokenize, "/detokenize", true, false, Access::kUse, "Tokens' text."},
    {Endpoint::kModels, "/v1/models", false, false, Access::kUse, "The models that are served."},
    {Endpoint::kModel, "/v1/models/{id}", false, false, Access::kUse, "One model."},
    {Endpoint::kOpenApi, "/openapi.json", false, false, Access::kUse, "This document."},
    {Endpoint::kVersion, "/version", false, false, Access::kUse, "The server's version."},
    {Endpoint::kLive, "/livez", false, true, Access::kUse, "Whether steps make progress."},
    {Endpoint::kReady, "/readyz", false, true, Access::kUse, "Whether requests are taken."},
    {Endpoint::kStartup, "/startupz", false, true, Access::kUse, "Whether the start is over."},
    {Endpoint::kHealth, "/health", false, true, Access::kUse, "As /readyz."},
    {Endpoint::kMetrics, "/metrics", false, false, Access::kMetrics, "Prometheus metrics."},
    {Endpoint::kAdminModels, "/admin/models", false, false, Access::kAdmin,
     "Models and their states."},
    {Endpoint::kAdminModel, "/admin/models/{name}/{action}", true, false, Access::kAdmin,
     "Starts load, unload, sleep or wake."},
};
constexpr Route kNowhere = {Endpoint::kNone, "other", false, false, Access::kUse, ""};

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kAdminPrefix = "/admin/models/";

const Route& RouteOf(Endpoint endpoint) {
  for (const Route& route : kRoutes) {
    if (route.endpoint == endpoint) return route;
  }
  return kNowhere;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> NameOf(std::string_view encoded) {
  std::optional<std::string> name = PercentDecode(encoded);
  if (name.has_value() && (name->empty() || name->size() > kNameBytesMax)) return std::nullopt;
  return name;
}

// Names may hold slashes: the action is what follows the last.
Match AdminMatch(std::string_view rest) {
  const size_t slash = rest.rfind('/');
  if (slash == std::string_view::npos) return {&kNowhere, "", ""};
  const std::string_view action = rest.substr(slash + 1);
  const std::optional<std::string> name = NameOf(rest.substr(0, slash));
  const bool known =
      action == "load" || action == "unload" || action == "sleep" || action == "wake";
  if (!known || !name.has_value()) return {&kNowhere, "", ""};
  return {&RouteOf(Endpoint::kAdminModel), *name, std::string(action)};
}

}  // namespace

absl::Span<const Route> Routes() { return kRoutes; }

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexValue(text[i + 1]);
      const int low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) return std::nullopt;
    out.push_back(c);
  }
  if (text::FirstInvalidUtf8(out) != out.size()) return std::nullopt;
  return out;
}

Match FindRoute(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool has_argument = std::string_view(route.pattern).ends_with('}');
    if (!has_argument && path == route.pattern) return {&route, "", ""};
  }
  if (path.starts_with(kModelPrefix)) {
    const std::optional<std::string> name = NameOf(path.substr(kModelPrefix.size()));
    if (name.has_value()) return {&RouteOf(Endpoint::kModel), *name, ""};
  }
  if (path.starts_with(kAdminPrefix)) return AdminMatch(path.substr(kAdminPrefix.size()));
  return {&kNowhere, "", ""};
}

std::string AllowOf(const Route& route) {
  if (route.endpoint == Endpoint::kNone) return "GET, HEAD, POST, OPTIONS";
  return route.is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

}  // namespace cuvil::server::http
