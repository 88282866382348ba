// One client's connection: reads requests one after the other, has them admitted and answered,
// writes. Lives as long as a handler of it is pending; belongs to the I/O thread.
//
//   idle -> head -> body -> busy -> (written) -> idle        keep-alive
//                     any refusal -> lingering -> closed     nothing after it is executed
//
// Reads and writes are done when the socket is ready, without buffers that wait for them: an idle
// connection costs less than 2 KiB. While a request is worked on the connection goes on reading, to
// learn that the client has left; what a pipelining client sends meanwhile is kept up to a limit.
// A client that closes its sending side while a model works for it counts as gone.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/front.h"
#include "server/http/message_reader.h"
#include "server/http/response.h"

namespace cuvil::server::http {

using Clock = std::chrono::steady_clock;

// One request from its head to the last byte of its answer.
struct Exchange {
  RequestHead head;
  std::string body;
  Match match;
  std::string tenant, cors_origin, request_id;
  RequestRecord record;
  bool started = false;  // the observer was told
  Clock::time_point began, body_done;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Front* front, boost::asio::ip::tcp::socket socket, std::string peer, bool over_limit);
  ~Connection();

  void Start();

  // The answer to the request at hand, by whoever works on it. Each request gets one Respond, or
  // BeginStream, any number of Write and one EndStream. No effect once the connection is closed.
  void Respond(Response response);
  void BeginStream(std::string_view content_type);
  void Write(std::string_view bytes);
  void EndStream();
  bool stream_begun() const { return streaming_; }
  // A request is at hand and not answered yet.
  bool open() const { return state_ == State::kBusy && !answered_; }

  Exchange& exchange() { return *exchange_; }
  void set_job(std::shared_ptr<Job> job) { job_ = std::move(job); }

  // Sends what is gathered, as far as the socket takes it.
  void Flush();
  // Ends an idle connection, refuses a request whose body is not whole, lets a busy one end after
  // its answer.
  void BeginDrain();
  // The drain's deadline: fails the request at hand.
  void FailNow(const absl::Status& status);
  // At once, whatever is under way.
  void Close(std::string_view why);

 private:
  enum class State : uint8_t { kReading, kBusy, kLingering, kClosed };

  void WaitRead();
  void OnReadable();
  void TakeBytes(std::string_view bytes);
  void ReadOn();
  void OnEndOfInput();
  void OnHead();
  void OnBody();
  bool BodyFits();
  void Refuse(const Refusal& refusal);
  void StartExchange();
  void FinishExchange();
  void CheckBacklog();
  void OnWritten();
  void Linger();
  Envelope EnvelopeNow();

  void Arm(absl::Duration from_now);
  void ArmBusy();
  void WaitTimer();
  void OnTimer();
  void OnDeadline();

  Front* front_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  Clock::time_point deadline_, timer_at_, body_began_;
  Clock::time_point last_write_;     // of the answer, by whoever works on it
  Clock::time_point last_progress_;  // of the socket, while something is unsent
  bool timer_waits_ = false;
  std::string peer_;
  bool over_limit_;

  State state_ = State::kReading;
  MessageReader reader_;
  std::string early_;  // bytes after the request at hand
  bool read_waits_ = false, input_ended_ = false;
  size_t lingered_bytes_ = 0;
  size_t body_bytes_ = 0;  // counted in front_->body_bytes

  std::unique_ptr<Exchange> exchange_;
  std::shared_ptr<Job> job_;
  bool keep_alive_ = true;
  bool client_is_done_ = false;  // it said that its last request is the last one
  bool streaming_ = false, answered_ = false;

  std::string out_;
  size_t out_sent_ = 0;
  bool write_waits_ = false;
};

}  // namespace cuvil::server::http
