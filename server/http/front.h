// What the connections of one server share. Everything here belongs to the I/O thread, except where
// said; the pool's threads get copies of what they work on.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/api/backend.h"
#include "server/http/admission.h"
#include "server/http/event_queue.h"
#include "server/http/options.h"

namespace cuvil::server::http {

class Connection;

// Work on one admitted request that is not answered at once.
class Job {
 public:
  virtual ~Job() = default;
  // The client is gone, or its connection is given up: nothing can be sent any more.
  virtual void OnClientGone() = 0;
  // Nothing has been sent for a while: time for a sign of life, where the answer can hold one.
  virtual void OnQuiet() {}
  // End now with this error (drain's deadline), as an event where a stream has begun.
  virtual void Fail(const absl::Status& status) = 0;
  // Receives a part's events; `part` is what Front::Listen was given.
  virtual void OnEvents(int part, Events events) {}
};

class Front {
 public:
  Front(Options options, Hooks hooks, Backend* backend);
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  const Options& options() const { return options_; }
  const Hooks& hooks() const { return hooks_; }
  Backend& backend() { return *backend_; }
  boost::asio::io_context& io() { return io_; }
  Observer& observer() { return *observer_; }

  // After the I/O thread has ended: ends the pool and drops events to come.
  void Stop();

  // Runs `work` on the pool and then `then` on the I/O thread, where `then` dies too. Both must
  // keep alive what they use; `work` must drop nothing that belongs to the I/O thread.
  template <typename Work, typename Then>
  void OnPool(Work work, Then then);

  // Events of a request to be submitted with the returned sink go to `job` from now on; Forget
  // ends that, and so does their last event.
  std::pair<uint64_t, std::shared_ptr<AnswerSink>> Listen(std::shared_ptr<Job> job, int part);
  void Forget(uint64_t ticket) { listeners_.erase(ticket); }

  // Sends what the connection has gathered once the events at hand are all taken.
  void FlushSoon(std::shared_ptr<Connection> connection);

  std::string_view date();  // of now, for headers
  int64_t unix_seconds() const;
  std::string NewId();  // 32 hexadecimal digits, not guessable
  uint64_t NewSeed();

  // Connections that are open. Not owned: pending handlers keep them.
  absl::flat_hash_set<Connection*> connections;
  bool bound_to_loopback = true;
  bool draining = false;
  size_t body_bytes = 0;          // of bodies that requests at hand came with
  int busy = 0;                   // requests between their head and their last byte
  std::function<void()> on_idle;  // called once, when busy becomes 0
  void AddBusy(int change);

 private:
  struct Listener {
    std::shared_ptr<Job> job;
    int part;
  };
  void TakeEvents(std::vector<EventQueue::Entry> entries);

  Options options_;
  Hooks hooks_;
  Backend* backend_;
  Observer silent_;
  Observer* observer_;
  boost::asio::io_context io_;
  boost::asio::thread_pool pool_;
  std::shared_ptr<EventQueue> events_;
  absl::flat_hash_map<uint64_t, Listener> listeners_;
  uint64_t next_ticket_ = 1;
  std::vector<std::shared_ptr<Connection>> dirty_;
  bool taking_ = false;
  int64_t date_second_ = -1;
  std::string date_;
};

template <typename Work, typename Then>
void Front::OnPool(Work work, Then then) {
  // In a box of its own, whose one owner goes from thread to thread: a capture of const type would
  // be copied by each move, and its last copy could die on the pool's thread.
  auto box = std::make_unique<Then>(std::move(then));
  boost::asio::post(pool_, [this, work = std::move(work), box = std::move(box)]() mutable {
    auto result = work();
    boost::asio::post(io_, [box = std::move(box), result = std::move(result)]() mutable {
      (*box)(std::move(result));
    });
  });
}

}  // namespace cuvil::server::http
