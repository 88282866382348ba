#include "server/http/message_reader.h"

#include <algorithm>

#include "base/status.h"

namespace cuvil::server::http {
namespace {

// A declared length is not believed before that much has come.
constexpr size_t kReserveMax = size_t{64} << 10;

}  // namespace

void MessageReader::Fail(int status, std::string message, RejectReason reason) {
  refusal_ = {.status = status, .message = std::move(message), .reason = reason};
  state_ = State::kFailed;
}

size_t MessageReader::Feed(std::string_view input) {
  size_t at = 0;
  while (at < input.size()) {
    size_t took = 0;
    if (state_ == State::kIdle || state_ == State::kHead) {
      took = FeedHead(input.substr(at));
    } else if (state_ == State::kBody) {
      took = FeedBody(input.substr(at));
    }
    if (took == 0) break;
    at += took;
    bytes_read_ += took;
  }
  return at;
}

// A line feed on its own, or a binary protocol, never comes to an end that we would see.
bool MessageReader::RefuseBadBytes(size_t from) {
  for (size_t i = from; i < raw_head_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(raw_head_[i]);
    const bool bare = byte == '\n' && (i == 0 || raw_head_[i - 1] != '\r');
    if (!bare && (byte >= 0x20 || byte == '\r' || byte == '\n' || byte == '\t')) continue;
    Fail(400, "the request's head is broken", RejectReason::kProtocol);
    return true;
  }
  return false;
}

// The first two bytes: one empty line before a request is forgiven, because old clients end a body
// with it.
size_t MessageReader::FeedStart(std::string_view input) {
  const size_t had = raw_head_.size();
  raw_head_.append(input.substr(0, 2 - had));
  const size_t took = raw_head_.size() - had;
  if (RefuseBadBytes(had)) return 0;
  if (raw_head_ == "\r\n") {
    raw_head_.clear();
    line_forgiven_ = true;
  }
  return took;
}

size_t MessageReader::FeedHead(std::string_view input) {
  state_ = State::kHead;
  if (!line_forgiven_ && raw_head_.size() < 2) return FeedStart(input);
  // The end may straddle what is here and what comes.
  const size_t from = raw_head_.size() < 3 ? 0 : raw_head_.size() - 3;
  const size_t had = raw_head_.size();
  const size_t room = head_bytes_max_ - std::min(head_bytes_max_, had);
  raw_head_.append(input.substr(0, room + 1));
  const size_t end = raw_head_.find("\r\n\r\n", from);
  if (end == std::string::npos || end + 4 > head_bytes_max_) {
    if (RefuseBadBytes(had)) return 0;
    if (raw_head_.size() <= head_bytes_max_) return raw_head_.size() - had;
    Fail(431, absl::StrCat("the request's head is over ", head_bytes_max_, " bytes"),
         RejectReason::kProtocol);
    return 0;
  }
  raw_head_.resize(end + 4);
  const size_t took = end + 4 - had;
  head_ = RequestHead();
  refusal_ = ParseHead(raw_head_, &head_);
  state_ = refusal_.refused() ? State::kFailed : State::kHeadDone;
  raw_head_ = std::string();
  line_forgiven_ = false;
  return took;
}

void MessageReader::AcceptBody(size_t body_bytes_max) {
  if (head_.chunked) {
    chunks_.emplace(body_bytes_max);
    state_ = State::kBody;
    return;
  }
  if (head_.length > body_bytes_max) {
    return Fail(
        413,
        absl::StrCat("the body has ", head_.length, " bytes, and ", body_bytes_max, " is the most"),
        RejectReason::kTooLarge);
  }
  left_ = head_.length;
  state_ = left_ == 0 ? State::kDone : State::kBody;
  body_.reserve(std::min<size_t>(static_cast<size_t>(left_), kReserveMax));
}

size_t MessageReader::FeedBody(std::string_view input) {
  if (!chunks_.has_value()) {
    const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, input.size()));
    body_.append(input.substr(0, take));
    left_ -= take;
    if (left_ == 0) state_ = State::kDone;
    return take;
  }
  const size_t took = chunks_->Feed(input, &body_);
  switch (chunks_->state()) {
    case ChunkedDecoder::State::kMore:
      break;
    case ChunkedDecoder::State::kDone:
      state_ = State::kDone;
      break;
    case ChunkedDecoder::State::kBroken:
      Fail(400, "the chunked body is broken", RejectReason::kProtocol);
      break;
    case ChunkedDecoder::State::kTooLarge:
      Fail(413, absl::StrCat("the chunked body ", chunks_->excess()), RejectReason::kTooLarge);
      break;
  }
  return took;
}

void MessageReader::Next(RequestHead* head, std::string* body) {
  *head = std::move(head_);
  *body = std::move(body_);
  head_ = RequestHead();
  body_ = std::string();
  chunks_.reset();
  bytes_read_ = 0;
  state_ = State::kIdle;
}

}  // namespace cuvil::server::http
