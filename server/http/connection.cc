#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <utility>

#include "server/http/handle.h"

namespace cuvil::server::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadBytes = size_t{64} << 10;
// One connection reads so often before others have a turn.
constexpr int kReadsPerTurn = 8;
// Of requests that a client sends before its last one is answered.
constexpr size_t kEarlyBytesMax = size_t{64} << 10;
// What a refused client may go on sending before the connection is cut.
constexpr size_t kLingerBytesMax = size_t{16} << 20;
// A buffer that grew beyond this is given back when it is empty.
constexpr size_t kKeptBufferBytes = size_t{16} << 10;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

Clock::duration ToClock(absl::Duration duration) {
  return std::chrono::nanoseconds(absl::ToInt64Nanoseconds(duration));
}

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Connection::Connection(Front* front, asio::ip::tcp::socket socket, std::string peer,
                       bool over_limit)
    : front_(front),
      socket_(std::move(socket)),
      timer_(front->io()),
      peer_(std::move(peer)),
      over_limit_(over_limit),
      reader_(front->options().head_bytes_max) {
  front_->connections.insert(this);
  front_->observer().OnConnections(static_cast<int64_t>(front_->connections.size()));
}

Connection::~Connection() {
  front_->connections.erase(this);
  front_->observer().OnConnections(static_cast<int64_t>(front_->connections.size()));
}

void Connection::Start() {
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  Arm(front_->options().head_timeout);
  WaitRead();
}

// Input.

void Connection::WaitRead() {
  const bool full = state_ == State::kBusy && early_.size() >= kEarlyBytesMax;
  if (read_waits_ || input_ended_ || full || state_ == State::kClosed) return;
  read_waits_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](error_code error) {
                       self->read_waits_ = false;
                       if (!error) self->OnReadable();
                     });
}

void Connection::OnReadable() {
  // Shared by all connections: only the I/O thread reads.
  static thread_local std::array<char, kReadBytes> scratch;
  for (int turn = 0; turn < kReadsPerTurn && state_ != State::kClosed; ++turn) {
    if (state_ == State::kBusy && early_.size() >= kEarlyBytesMax) return;
    error_code error;
    const size_t got = socket_.read_some(asio::buffer(scratch), error);
    if (error == asio::error::would_block || error == asio::error::try_again) break;
    if (error == asio::error::eof) return OnEndOfInput();
    if (error) return Close("the connection broke");
    TakeBytes(std::string_view(scratch.data(), got));
  }
  WaitRead();
}

void Connection::TakeBytes(std::string_view bytes) {
  switch (state_) {
    case State::kReading:
      early_.append(bytes);
      return ReadOn();
    case State::kBusy:
      early_.append(bytes);
      return;
    case State::kLingering:
      lingered_bytes_ += bytes.size();
      if (lingered_bytes_ > kLingerBytesMax) Close("");
      return;
    case State::kClosed:
      return;
  }
}

void Connection::ReadOn() {
  while (state_ == State::kReading) {
    const MessageReader::State before = reader_.state();
    early_.erase(0, reader_.Feed(early_));
    const MessageReader::State after = reader_.state();
    if (exchange_ != nullptr && !BodyFits()) break;
    if (before == MessageReader::State::kIdle && after != MessageReader::State::kIdle) {
      Arm(front_->options().head_timeout);
    }
    if (after == MessageReader::State::kFailed) {
      Refuse(reader_.refusal());
    } else if (after == MessageReader::State::kHeadDone) {
      OnHead();
    } else if (after == MessageReader::State::kDone) {
      OnBody();
    } else {
      if (after == MessageReader::State::kBody) {
        const absl::Duration left =
            front_->options().body_total_timeout - absl::FromChrono(Clock::now() - body_began_);
        Arm(std::min(front_->options().body_idle_timeout, left));
      }
      break;
    }
  }
  if (early_.empty() && early_.capacity() > kKeptBufferBytes) early_ = std::string();
}

void Connection::OnEndOfInput() {
  input_ended_ = true;
  // What is being written, and short work that needs no model, still reaches a half-closed client.
  if (state_ == State::kBusy && (job_ == nullptr || answered_)) {
    keep_alive_ = false;
    return;
  }
  Close(state_ == State::kBusy || exchange_ != nullptr ? "the client left" : "");
}

// A request.

void Connection::OnHead() {
  StartExchange();
  const RequestHead& head = reader_.head();
  Exchange& exchange = *exchange_;
  const Admission admission = Admit(head, {.options = &front_->options(),
                                           .authorizer = &front_->hooks().authorizer,
                                           .bound_to_loopback = front_->bound_to_loopback,
                                           .draining = front_->draining,
                                           .metrics_exist = bool(front_->hooks().metrics),
                                           .over_connection_limit = over_limit_,
                                           .peer = peer_});
  exchange.match = admission.match;
  exchange.tenant = admission.tenant;
  exchange.cors_origin = admission.cors_origin;
  exchange.record.endpoint = admission.match.route->pattern;
  exchange.record.tenant = admission.tenant;
  if (admission.must_close || front_->draining) keep_alive_ = false;
  if (admission.authorised) {
    exchange.started = true;
    front_->observer().OnStarted({exchange.record.endpoint, exchange.tenant});
  }
  if (admission.kind == Admission::Kind::kRefused) return Refuse(admission.refusal);
  if (admission.kind == Admission::Kind::kAnswered) {
    // A body that was not asked for stays unread.
    if (head.has_body()) keep_alive_ = false;
    state_ = State::kBusy;
    return Respond(admission.answer);
  }
  reader_.AcceptBody(front_->options().body_bytes_max);
  if (reader_.state() == MessageReader::State::kFailed) return Refuse(reader_.refusal());
  if (reader_.state() == MessageReader::State::kBody) {
    body_began_ = Clock::now();
    if (head.expects_continue) {
      out_ += kContinue;
      Flush();
    }
  }
}

// Counts what has come of the body; refuses the request when all bodies together are too many.
bool Connection::BodyFits() {
  const size_t now = reader_.body_size();
  front_->body_bytes += now - body_bytes_;  // never shrinks while a body is read
  body_bytes_ = now;
  if (front_->body_bytes <= front_->options().AllBodiesBytesMax()) return true;
  Refusal refusal;
  refusal.status = 503;
  refusal.message =
      absl::StrCat("the server would hold more than ", front_->options().AllBodiesBytesMax(),
                   " bytes of requests; try again later");
  refusal.code = "service_unavailable";
  refusal.reason = RejectReason::kUnavailable;
  refusal.headers.emplace_back("Retry-After", "1");
  Refuse(refusal);
  return false;
}

void Connection::StartExchange() {
  const RequestHead& head = reader_.head();
  exchange_ = std::make_unique<Exchange>();
  exchange_->began = exchange_->body_done = Clock::now();
  const std::string_view id = AcceptableRequestId(head);
  exchange_->request_id = id.empty() ? front_->NewId() : std::string(id);
  exchange_->record.id = exchange_->request_id;
  exchange_->record.endpoint = "other";
  exchange_->record.method = MethodName(head.method);
  exchange_->record.peer = peer_;
  keep_alive_ = head.keep_alive;
  streaming_ = answered_ = false;
  front_->AddBusy(1);
}

void Connection::OnBody() {
  exchange_->record.bytes_in = static_cast<int64_t>(reader_.bytes_read());
  reader_.Next(&exchange_->head, &exchange_->body);
  client_is_done_ = !exchange_->head.keep_alive;
  exchange_->body_done = Clock::now();
  state_ = State::kBusy;
  last_write_ = Clock::now();
  ArmBusy();
  Handle(front_, shared_from_this());
}

void Connection::Refuse(const Refusal& refusal) {
  if (exchange_ == nullptr) StartExchange();
  front_->observer().OnRejected(refusal.reason, exchange_->record.endpoint);
  // What follows on this connection cannot be trusted, or would have to be read for nothing; a
  // refusal by the head of a request without body leaves the connection in order.
  const bool in_order =
      reader_.state() == MessageReader::State::kHeadDone && !reader_.head().has_body();
  if (!in_order) keep_alive_ = false;
  state_ = State::kBusy;
  Respond(RefusalResponse(refusal));
}

// Output.

Envelope Connection::EnvelopeNow() {
  if (front_->draining || input_ended_) keep_alive_ = false;
  return {.request_id = exchange_->request_id,
          .date = front_->date(),
          .origin = exchange_->cors_origin,
          .is_http11 = exchange_->head.is_http11 && reader_.head().is_http11,
          .keep_alive = keep_alive_};
}

void Connection::Respond(Response response) {
  if (state_ != State::kBusy || answered_) return;
  const bool is_head = exchange_->record.method == "HEAD";
  exchange_->record.status = response.status;
  exchange_->record.error = std::move(response.error);
  out_ += WholeHead(response, EnvelopeNow());
  if (!is_head && response.status != 204) out_ += response.body;
  answered_ = true;
  job_.reset();
  Flush();
}

void Connection::BeginStream(std::string_view content_type) {
  if (state_ != State::kBusy || answered_ || streaming_) return;
  // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
  if (!exchange_->head.is_http11) keep_alive_ = false;
  exchange_->record.status = 200;
  exchange_->record.streamed = true;
  streaming_ = true;
  out_ += StreamHead(content_type, EnvelopeNow());
}

void Connection::Write(std::string_view bytes) {
  if (state_ != State::kBusy || answered_ || !streaming_) return;
  if (exchange_->head.is_http11) {
    AppendChunk(bytes, &out_);
  } else {
    out_.append(bytes);
  }
  last_write_ = Clock::now();
  if (exchange_->record.first_chunk_s == 0) {
    exchange_->record.first_chunk_s = SecondsBetween(exchange_->body_done, last_write_);
  }
  front_->FlushSoon(shared_from_this());
}

void Connection::EndStream() {
  if (state_ != State::kBusy || answered_ || !streaming_) return;
  if (exchange_->head.is_http11) out_ += "0\r\n\r\n";
  answered_ = true;
  job_.reset();
  front_->FlushSoon(shared_from_this());
}

void Connection::Flush() {
  if (state_ == State::kClosed) return;
  if (write_waits_) return CheckBacklog();
  if (out_sent_ == 0) last_progress_ = Clock::now();
  while (out_sent_ < out_.size()) {
    error_code error;
    const size_t sent =
        socket_.write_some(asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_), error);
    if (error == asio::error::would_block || error == asio::error::try_again) break;
    if (error) return Close("the client left");
    out_sent_ += sent;
    last_progress_ = Clock::now();
    if (exchange_ != nullptr) exchange_->record.bytes_out += static_cast<int64_t>(sent);
  }
  if (out_sent_ == out_.size()) {
    out_.clear();
    out_sent_ = 0;
    if (out_.capacity() > kKeptBufferBytes) out_ = std::string();
    return OnWritten();
  }
  if (out_sent_ > out_.size() / 2) {
    out_.erase(0, out_sent_);
    out_sent_ = 0;
  }
  write_waits_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](error_code error) {
                       self->write_waits_ = false;
                       if (!error) self->Flush();
                     });
  CheckBacklog();
}

// Whole answers were paid for when they were made; a stream could grow without end.
void Connection::CheckBacklog() {
  const bool streams = state_ == State::kBusy && streaming_;
  if (streams && out_.size() - out_sent_ > front_->options().backlog_bytes_max) {
    Close("the client reads too slowly");
  }
}

void Connection::OnWritten() {
  last_write_ = Clock::now();
  if (state_ != State::kBusy || !answered_) return;
  FinishExchange();
  if (!keep_alive_ || input_ended_) return Linger();
  state_ = State::kReading;
  Arm(front_->options().keep_alive_timeout);
  // A refusal by the head leaves the reader there; the message itself has no more bytes.
  if (reader_.state() == MessageReader::State::kHeadDone) {
    reader_.AcceptBody(0);
    RequestHead head;
    std::string body;
    reader_.Next(&head, &body);
  }
  // Not from here: a client that pipelines would make this a recursion.
  if (!early_.empty()) {
    asio::post(front_->io(), [self = shared_from_this()] {
      if (self->state_ == State::kReading) self->ReadOn();
    });
  }
  WaitRead();
}

void Connection::FinishExchange() {
  if (exchange_ == nullptr) return;
  RequestRecord& record = exchange_->record;
  record.total_s = SecondsBetween(exchange_->began, Clock::now());
  if (record.status == 0) record.status = 499;
  if (exchange_->started) front_->observer().OnEnded(record);
  exchange_.reset();
  front_->body_bytes -= std::exchange(body_bytes_, 0);
  front_->AddBusy(-1);
}

// The end.

void Connection::Linger() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  if (input_ended_ || (client_is_done_ && early_.empty())) return Close("");
  // Closing with unread input would make the kernel throw our answer away: read it to its end.
  state_ = State::kLingering;
  early_ = std::string();
  Arm(front_->options().linger);
  WaitRead();
}

void Connection::Close(std::string_view why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (exchange_ != nullptr && !why.empty() && exchange_->record.error.empty()) {
    exchange_->record.error = std::string(why);
  }
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  if (job != nullptr) job->OnClientGone();
  FinishExchange();
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
}

void Connection::BeginDrain() {
  if (state_ == State::kReading && exchange_ == nullptr &&
      reader_.state() == MessageReader::State::kIdle) {
    return Close("");
  }
  keep_alive_ = false;
  // A request that has not all come would be refused when it has: a client that sends slowly, or no
  // longer, must not hold up the end.
  if (state_ == State::kReading && exchange_ != nullptr) Refuse(ShuttingDown());
}

void Connection::FailNow(const absl::Status& status) {
  if (state_ == State::kReading || state_ == State::kLingering) return Close("");
  keep_alive_ = false;
  // A copy: the job answers, and answering lets go of it.
  if (const std::shared_ptr<Job> job = job_; job != nullptr) job->Fail(status);
}

// Time.

void Connection::Arm(absl::Duration from_now) {
  deadline_ = Clock::now() + ToClock(from_now);
  if (!timer_waits_ || deadline_ < timer_at_) WaitTimer();
}

void Connection::WaitTimer() {
  timer_waits_ = true;
  timer_at_ = deadline_;
  timer_.expires_at(deadline_);
  timer_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (self != nullptr && error != asio::error::operation_aborted) self->OnTimer();
  });
}

void Connection::OnTimer() {
  timer_waits_ = false;
  if (state_ == State::kClosed) return;
  if (Clock::now() < deadline_) return WaitTimer();
  OnDeadline();
}

void Connection::OnDeadline() {
  if (state_ == State::kLingering) return Close("");
  if (state_ == State::kReading) {
    const MessageReader::State at = reader_.state();
    // Nobody waits for an answer.
    if (at == MessageReader::State::kIdle) return Close("");
    Refusal refusal;
    refusal.status = 408;
    refusal.message = at == MessageReader::State::kBody ? "the body did not come in time"
                                                        : "the request's head did not come in time";
    refusal.reason = RejectReason::kTimeout;
    return Refuse(refusal);
  }
  const Clock::time_point now = Clock::now();
  const Clock::time_point give_up = last_progress_ + ToClock(front_->options().write_timeout);
  if (write_waits_ && now >= give_up) return Close("the client does not read");
  const Clock::duration ping = ToClock(front_->options().ping_interval);
  if (!answered_ && ping > Clock::duration::zero() && now - last_write_ >= ping) {
    last_write_ = now;
    if (const std::shared_ptr<Job> job = job_; job != nullptr) job->OnQuiet();
  }
  if (state_ == State::kBusy) ArmBusy();
}

// Until a request at hand needs a look: a client should have read by then, or a ping is due.
void Connection::ArmBusy() {
  const Clock::time_point now = Clock::now();
  const Clock::duration ping = ToClock(front_->options().ping_interval);
  Clock::time_point next =
      (write_waits_ ? last_progress_ : now) + ToClock(front_->options().write_timeout);
  if (!answered_ && ping > Clock::duration::zero()) next = std::min(next, last_write_ + ping);
  Arm(absl::FromChrono(next - now));
}

}  // namespace cuvil::server::http
