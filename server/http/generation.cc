#include "server/http/generation.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "server/http/handle.h"

namespace cuvil::server::http {
namespace {

// Parts of one request that are in the model's queue at once: the others wait here, so that a list
// of prompts does not fill the queue alone.
constexpr int kPartsAtOnce = 32;
// Answers larger than this are written on the pool.
constexpr size_t kLargeAnswerBytes = size_t{64} << 10;
constexpr char kPing[] = ": keep-alive\n\n";
// A day: more is no deadline, as for gRPC's.
constexpr double kTimeoutMaxSeconds = 86400;
// Of a header's value, in a sentence about it.
constexpr size_t kShownBytesMax = 40;

// From x-request-timeout (seconds) and the server's own limit; whichever is shorter.
absl::StatusOr<int64_t> DeadlineMs(const RequestHead& head, const Options& options) {
  int64_t limit = absl::ToInt64Milliseconds(options.request_timeout);
  if (head.Count("x-request-timeout") == 0) return limit;
  const std::string_view text = head.Get("x-request-timeout");
  double seconds = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  if (!whole || !(seconds > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("x-request-timeout must be a number of seconds above 0, such as 2.5, not '",
                     Sv(text.substr(0, kShownBytesMax)), "'"));
  }
  if (seconds > kTimeoutMaxSeconds) return limit;
  const auto asked = static_cast<int64_t>(std::ceil(seconds * 1000));
  return limit == 0 ? asked : std::min(limit, asked);
}

}  // namespace

void Generation::Start(Prepare prepare) {
  Exchange& exchange = connection_->exchange();
  const absl::StatusOr<int64_t> deadline_ms = DeadlineMs(exchange.head, front_->options());
  if (!deadline_ms.ok()) {
    ended_ = true;
    return RespondError(front_, connection_.get(), deadline_ms.status());
  }
  if (const absl::Status room = front_->backend().CheckRoom(*deadline_ms); !room.ok()) {
    ended_ = true;
    return RespondError(front_, connection_.get(), room);
  }
  openai::CallContext context;
  context.backend = &front_->backend();
  context.tenant = exchange.tenant;
  context.id = front_->NewId();
  context.created = front_->unix_seconds();
  context.seed = front_->NewSeed();
  context.deadline_ms = *deadline_ms;
  front_->OnPool([prepare, body = std::move(exchange.body),
                  context = std::move(context)] { return prepare(body, context); },
                 [self = shared_from_this()](absl::StatusOr<openai::Call> call) {
                   self->OnPrepared(std::move(call));
                 });
}

void Generation::OnPrepared(absl::StatusOr<openai::Call> call) {
  if (connection_ == nullptr || ended_) return;
  Exchange& exchange = connection_->exchange();
  exchange.record.prepare_s =
      std::chrono::duration<double>(Clock::now() - exchange.body_done).count();
  if (!call.ok()) {
    ended_ = true;
    return RespondError(front_, connection_.get(), call.status());
  }
  call_ = *std::move(call);
  exchange.record.answer_id = call_.id;
  exchange.record.model = call_.model;
  SubmitMore();
}

absl::Status Generation::SubmitNext() {
  const size_t part = running_.size();
  auto [ticket, sink] = front_->Listen(shared_from_this(), static_cast<int>(part));
  // A full queue may take it later: the request is still needed then.
  GenerateRequest request = call_.parts[part];
  const absl::StatusOr<uint64_t> handle =
      front_->backend().Submit(std::move(request), std::move(sink));
  if (!handle.ok()) {
    front_->Forget(ticket);
    return handle.status();
  }
  running_.push_back({.ticket = ticket, .handle = *handle, .live = true});
  call_.parts[part] = GenerateRequest();
  ++live_;
  return absl::OkStatus();
}

// False when the request was refused and answered so.
bool Generation::SubmitMore() {
  while (running_.size() < call_.parts.size() && live_ < kPartsAtOnce) {
    const absl::Status status = SubmitNext();
    if (status.ok()) continue;
    // What is ahead of it in the queue is our own: there will be room.
    if (absl::IsResourceExhausted(status) && live_ > 0) return true;
    AbortAll();
    if (connection_->stream_begun()) {
      Fail(status);
    } else {
      ended_ = true;
      RespondError(front_, connection_.get(), status);
    }
    return false;
  }
  return true;
}

void Generation::OnEvents(int part, Events events) {
  if (events.done) {
    running_[static_cast<size_t>(part)].live = false;
    --live_;
  }
  if (connection_ == nullptr || ended_) return;
  const bool part_done = events.done;
  std::string sse;
  call_.answer->Take(part, std::move(events), &sse);
  Advance(std::move(sse));
  if (part_done && !ended_ && connection_ != nullptr) SubmitMore();
}

void Generation::Advance(std::string sse) {
  TakeNotes();
  openai::Answer& answer = *call_.answer;
  if (answer.complete()) {
    ended_ = true;
    AbortAll();
    // Nothing is on the wire yet: a failure can still be a status.
    const bool as_status = !connection_->stream_begun() && !answer.failure().ok();
    if (as_status) return RespondError(front_, connection_.get(), answer.failure());
    if (!call_.stream) return SendBody();
    if (!answer.failure().ok()) {
      connection_->exchange().record.error = std::string(answer.failure().message());
    }
  }
  if (!call_.stream || sse.empty()) return;
  connection_->BeginStream("text/event-stream; charset=utf-8");
  // Writing may find the client gone and let go of the connection.
  const std::shared_ptr<Connection> connection = connection_;
  connection->Write(sse);
  if (ended_) connection->EndStream();
}

void Generation::SendBody() {
  const std::shared_ptr<Connection> connection = connection_;
  if (call_.answer->bytes_held() <= kLargeAnswerBytes) {
    return connection->Respond({.body = call_.answer->Body()});
  }
  front_->OnPool(
      [answer = std::move(call_.answer)] { return answer->Body(); },
      [connection](std::string body) { connection->Respond({.body = std::move(body)}); });
}

void Generation::TakeNotes() {
  RequestRecord& record = connection_->exchange().record;
  record.usage = call_.answer->usage();
  record.timings = call_.answer->timings();
  record.finish_reason = call_.answer->finish_reason();
}

void Generation::AbortAll() {
  for (Running& running : running_) {
    if (!std::exchange(running.live, false)) continue;
    front_->Forget(running.ticket);
    front_->backend().Abort(running.handle);
  }
  live_ = 0;
}

void Generation::Fail(const absl::Status& status) {
  if (connection_ == nullptr || ended_) return;
  if (call_.answer == nullptr) {
    ended_ = true;
    return RespondError(front_, connection_.get(), status);
  }
  std::string sse;
  call_.answer->Fail(status, &sse);
  Advance(std::move(sse));
}

void Generation::OnQuiet() {
  if (connection_ == nullptr || ended_ || !call_.stream) return;
  // The head has waited for the first event, in case it would be an error. No longer.
  connection_->BeginStream("text/event-stream; charset=utf-8");
  const std::shared_ptr<Connection> connection = connection_;
  connection->Write(kPing);
}

void Generation::OnClientGone() {
  if (!ended_ && connection_ != nullptr) {
    RequestRecord& record = connection_->exchange().record;
    record.finish_reason = FinishName(FinishReason::kAborted);
  }
  ended_ = true;
  AbortAll();
  connection_ = nullptr;
}

}  // namespace cuvil::server::http
