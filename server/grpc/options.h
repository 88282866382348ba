// Settings of the gRPC door and their defaults. Plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/http/authorizer.h"
#include "server/http/observer.h"

namespace cuvil::server::grpc {

struct Options {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  uint16_t port = 8001;            // 0: the system picks one, see Server::address
  // Threads that check requests, render templates and tokenise.
  int pool_threads = 1;

  // A request over this is RESOURCE_EXHAUSTED, by gRPC itself, which holds it in an int. As HTTP's
  // bodies.
  size_t message_bytes_max = size_t{16} << 20;
  // Requests of all calls at hand; one that would go beyond is UNAVAILABLE. A lone request of the
  // size allowed always fits.
  size_t all_messages_bytes_max = size_t{512} << 20;
  size_t AllMessagesBytesMax() const { return std::max(all_messages_bytes_max, message_bytes_max); }
  // Unsent bytes of a stream: a reader this far behind is cancelled.
  size_t backlog_bytes_max = size_t{4} << 20;
  int streams_max = 1024;  // at once on one connection: more wait at the client
  int calls_max = 4096;    // at once on all connections: more are UNAVAILABLE

  absl::Duration write_timeout = absl::Seconds(60);  // of a stream, without progress
  // A connection on which nothing comes is asked whether it lives, and closed without an answer.
  absl::Duration keepalive_time = absl::Seconds(120);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  absl::Duration client_ping_min = absl::Seconds(10);  // clients that ask more often are cut off

  // From a call's arrival to its last token; its own deadline may be shorter. 0: none.
  absl::Duration request_timeout = absl::ZeroDuration();

  bool reflection = true;       // grpc.reflection.v1alpha is there
  bool open_reflection = true;  // and needs no key: it shows what the .proto file shows
};

struct Hooks {
  http::Authorizer authorizer;  // empty: everybody is tenant ""; called from several threads
  // Not owned; outlives the server; may be null. Called from several threads; `status` of a record
  // is a code of gRPC, `endpoint` one of Methods() or "other".
  http::Observer* observer = nullptr;
};

}  // namespace cuvil::server::grpc
