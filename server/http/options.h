// Settings of the HTTP front and their defaults. Plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/http/authorizer.h"
#include "server/http/observer.h"

namespace cuvil::server::http {

struct Options {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  uint16_t port = 8000;            // 0: the system picks one, see Server::address
  // Threads that parse, render templates, tokenise and write large answers. The I/O thread does
  // none of that, so that probes never wait for a body.
  int pool_threads = 1;

  // A head over this is 431. 32 KiB holds any browser's cookies.
  size_t head_bytes_max = size_t{32} << 10;
  // A body over this is 413. A context of a million tokens is about 4 MiB of text.
  size_t body_bytes_max = size_t{16} << 20;
  // Bodies of all requests that are not answered yet; one that would go beyond is 503. A lone body
  // of the size allowed always fits.
  size_t all_bodies_bytes_max = size_t{512} << 20;
  size_t AllBodiesBytesMax() const { return std::max(all_bodies_bytes_max, body_bytes_max); }
  // Unsent bytes of a stream: a reader this far behind is cut off.
  size_t backlog_bytes_max = size_t{4} << 20;
  int connections_max = 4096;

  absl::Duration head_timeout = absl::Seconds(10);         // from the first byte to the last
  absl::Duration body_idle_timeout = absl::Seconds(30);    // between two reads of a body
  absl::Duration body_total_timeout = absl::Seconds(300);  // of a whole body
  absl::Duration keep_alive_timeout =
      absl::Seconds(120);                            // proxies give up at 60 or 75: they first
  absl::Duration write_timeout = absl::Seconds(60);  // without progress
  absl::Duration ping_interval = absl::Seconds(15);  // of a stream that is silent; 0: none
  absl::Duration linger = absl::Seconds(2);  // for the client to read an error before the close

  // From the end of a request to its last token; x-request-timeout may ask for less. 0: none.
  absl::Duration request_timeout = absl::ZeroDuration();

  // Host names that requests may address, beside localhost and literal loopback addresses, when
  // bound to loopback; against DNS rebinding. When bound elsewhere and not empty: only these.
  std::vector<std::string> allowed_hosts;
  // Origins of web pages that may call ("https://app.example.org"); "*": any. Empty: none.
  std::vector<std::string> cors_origins;
  bool open_metrics = false;  // /metrics needs no key

  std::string version;  // of GET /version and /openapi.json
};

struct Hooks {
  Authorizer authorizer;                 // empty: everybody is tenant ""
  Observer* observer = nullptr;          // not owned; outlives the server; may be null
  std::function<std::string()> metrics;  // Prometheus text; called on a pool thread; empty: 404
};

}  // namespace cuvil::server::http
