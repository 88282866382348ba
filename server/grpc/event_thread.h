// Carries events from the models' step threads to one thread that writes them to streams: a step
// thread takes a lock and leaves, and is never held up by a socket. Also the door's clock. Outlives
// the server while a backend still holds sinks; after Stop events are dropped.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "server/api/request.h"

namespace cuvil::server::grpc {

// Takes the events of one request, on the event thread.
class EventTaker {
 public:
  virtual ~EventTaker() = default;
  virtual void Take(Events events) = 0;
};

class EventThread : public std::enable_shared_from_this<EventThread> {
 public:
  // `tick` runs on the thread, at least as often as it last asked to.
  explicit EventThread(std::function<absl::Duration()> tick);
  ~EventThread();

  std::shared_ptr<AnswerSink> MakeSink(std::shared_ptr<EventTaker> taker);  // any thread
  void TickSoon();                                                          // any thread
  void Stop();  // nothing is taken and no tick runs after this returns

 private:
  class Sink;
  struct Entry {
    std::shared_ptr<EventTaker> taker;
    Events events;
  };
  void Push(std::shared_ptr<EventTaker> taker, Events events);
  void Run();

  const std::function<absl::Duration()> tick_;
  // Not Abseil's: the thread sanitizer does not see through the one that Debian builds.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::vector<Entry> waiting_;
  bool tick_now_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cuvil::server::grpc
