#include "server/http/address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace cuvil::server::http {
namespace {

bool AllOf(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text, [more](char c) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    return plain || more.find(c) != std::string_view::npos;
  });
}

// Empty is allowed: RFC 9110 takes the port after the colon as "digits, maybe none".
bool IsPort(std::string_view text) {
  return text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// 127.a.b.c with four numbers and nothing else.
bool IsLoopbackV4(std::string_view name) {
  if (!name.starts_with("127.")) return false;
  int dots = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool dot = name[i] == '.';
    if (!dot && (name[i] < '0' || name[i] > '9')) return false;
    if (dot && (++dots > 3 || i + 1 == name.size() || name[i + 1] == '.')) return false;
  }
  return dots == 3;
}

}  // namespace

std::string HostName(std::string_view host) {
  const std::string lower = absl::AsciiStrToLower(Sv(host));
  std::string_view name = lower;
  std::string_view rest;
  if (name.starts_with('[')) {
    const size_t close = name.find(']');
    if (close == std::string_view::npos) return "";
    rest = name.substr(close + 1);
    name = name.substr(0, close + 1);
    if (!AllOf(name.substr(1, name.size() - 2), ":.")) return "";
  } else {
    const size_t colon = name.find(':');
    if (colon != std::string_view::npos) {
      rest = name.substr(colon);
      name = name.substr(0, colon);
    }
    if (!AllOf(name, "-._")) return "";
  }
  if (!rest.empty() && (rest[0] != ':' || !IsPort(rest.substr(1)))) return "";
  return std::string(name);
}

bool IsLoopbackName(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost") || name == "[::1]" ||
         IsLoopbackV4(name);
}

bool HostAllowed(std::string_view host, bool bound_to_loopback,
                 const std::vector<std::string>& allowed) {
  const std::string name = HostName(host);
  if (name.empty()) return false;
  if (std::ranges::find(allowed, name) != allowed.end()) return true;
  if (bound_to_loopback) return IsLoopbackName(name);
  return allowed.empty();
}

bool OriginListed(std::string_view origin, const std::vector<std::string>& allowed) {
  return std::ranges::any_of(
      allowed, [origin](const std::string& one) { return one == "*" || one == origin; });
}

bool OriginAllowed(std::string_view origin, std::string_view host,
                   const std::vector<std::string>& allowed) {
  if (OriginListed(origin, allowed)) return true;
  // An origin is never written with a colon and no port.
  if (host.ends_with(':')) host.remove_suffix(1);
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && origin.substr(scheme.size()) == host) return true;
  }
  return false;
}

}  // namespace cuvil::server::http
