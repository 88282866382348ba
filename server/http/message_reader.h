// Takes the bytes of a connection and gives one request after the other: head, then, once the head
// has been accepted, body. Knows the limits, knows no sockets and no clock. One thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/chunked.h"
#include "server/http/request_head.h"

namespace cuvil::server::http {

class MessageReader {
 public:
  enum class State : uint8_t {
    kIdle,      // between messages: no byte of the next one is here
    kHead,      // part of a head is here
    kHeadDone,  // head() is whole; waits for AcceptBody
    kBody,
    kDone,    // body is whole; waits for Next
    kFailed,  // refusal() says why; nothing more is read
  };

  explicit MessageReader(size_t head_bytes_max) : head_bytes_max_(head_bytes_max) {}

  // Takes bytes from `input` and returns how many. Stops where the state wants the caller.
  size_t Feed(std::string_view input);
  State state() const { return state_; }

  const RequestHead& head() const { return head_; }
  // Goes on from kHeadDone: the body may have `body_bytes_max` bytes. Fails with 413 when the head
  // already says it has more.
  void AcceptBody(size_t body_bytes_max);
  // From kDone: hands out the message and waits for the next.
  void Next(RequestHead* head, std::string* body);

  // Of the body, so far.
  size_t body_size() const { return body_.size(); }

  const Refusal& refusal() const { return refusal_; }
  // Of this message so far, framing included.
  size_t bytes_read() const { return bytes_read_; }

 private:
  size_t FeedHead(std::string_view input);
  size_t FeedStart(std::string_view input);
  bool RefuseBadBytes(size_t from);
  size_t FeedBody(std::string_view input);
  void Fail(int status, std::string message, RejectReason reason);

  size_t head_bytes_max_;
  State state_ = State::kIdle;
  std::string raw_head_;
  bool line_forgiven_ = false;
  RequestHead head_;
  std::string body_;
  std::optional<ChunkedDecoder> chunks_;
  uint64_t left_ = 0;
  size_t bytes_read_ = 0;
  Refusal refusal_;
};

}  // namespace cuvil::server::http
