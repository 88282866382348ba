// What the front tells about its work: for logs, counters and histograms. All methods are called on
// the I/O thread and must not block. Strings that clients choose (model, id, peer) are not fit to
// be label values, and may hold any bytes: escape them where they are written down.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/api/request.h"

namespace cuvil::server::http {

// Why a request was turned away before it reached a model. A closed set: fit to be a label.
enum class RejectReason : uint8_t {
  kProtocol,     // not HTTP as we speak it, or a header over its limit
  kAuth,         // 401, 403
  kQuota,        // the key's own limit
  kNotFound,     // no such path or model
  kInvalid,      // the body says what cannot be
  kTooLarge,     // body over the limit
  kTooLong,      // prompt over the context
  kQueueFull,    // the model's queue
  kUnavailable,  // loading, asleep, failed
  kDraining,
  kConnections,  // over the connection limit
  kTimeout,      // the client did not finish sending
};
std::string_view RejectName(RejectReason reason);  // "protocol", "auth", ...

struct RequestStart {
  std::string_view endpoint;  // as in RequestRecord
  std::string_view tenant;
};

// One answered (or abandoned) request.
struct RequestRecord {
  std::string id;             // x-request-id
  std::string answer_id;      // "chatcmpl-...", when a model worked
  std::string_view endpoint;  // the route's pattern, "/v1/models/{id}", or "other": a closed set
  std::string_view method;    // a closed set: GET HEAD POST OPTIONS, or "other"
  std::string model;          // served name; empty when none was found
  std::string tenant;
  std::string peer;
  int status = 0;  // sent, or 499: the client left before a status was sent
  bool streamed = false;
  // "stop", "length", "abort", "deadline", "error"; empty when no model worked. Of several choices
  // the worst.
  std::string_view finish_reason;
  std::string error;  // one sentence, for logs; empty when all went well
  int64_t bytes_in = 0, bytes_out = 0;
  double prepare_s = 0;      // parsing, template, tokens
  double first_chunk_s = 0;  // from the end of the request to the first event sent; 0: none
  double total_s = 0;        // from the end of the head to the last byte handed to the socket
  Usage usage;               // sums over the parts of a list prompt
  Timings timings;           // of the part that ended last
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnConnections(int64_t open) {}  // after each change
  // After authorisation, of every request; OnEnded follows exactly once.
  virtual void OnStarted(const RequestStart& start) {}
  virtual void OnEnded(const RequestRecord& record) {}
  // Beside OnEnded when the request had started. `endpoint` may be "other".
  virtual void OnRejected(RejectReason reason, std::string_view endpoint) {}
};

}  // namespace cuvil::server::http
