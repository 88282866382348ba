// Names in Host and Origin headers: which ones a server bound to loopback believes. A web page
// whose own name resolves to 127.0.0.1 reaches such a server through the browser; its Host (or
// Origin) gives it away. No sockets; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cuvil::server::http {

// The name in "name", "name:port", "[v6]" or "[v6]:port", in lower case; "" when it is none.
std::string HostName(std::string_view host);

// localhost, *.localhost and literal loopback addresses.
bool IsLoopbackName(std::string_view name);

// Whether a request to `host` is meant for a server with this list; see Options::allowed_hosts.
bool HostAllowed(std::string_view host, bool bound_to_loopback,
                 const std::vector<std::string>& allowed);

// Whether a page of `origin` may call: it is listed, or it is the server's own ("http://" + host).
bool OriginAllowed(std::string_view origin, std::string_view host,
                   const std::vector<std::string>& allowed);
bool OriginListed(std::string_view origin, const std::vector<std::string>& allowed);

}  // namespace cuvil::server::http
