// Carries events from the models' step threads to the I/O thread: many writers, one reader. The
// reader is woken once for all that has come since it last looked, not once per event. Outlives the
// server while a backend still holds sinks; after Close events are dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/api/request.h"

namespace cuvil::server::http {

class EventQueue : public std::enable_shared_from_this<EventQueue> {
 public:
  struct Entry {
    uint64_t ticket;
    Events events;
  };
  // `take` runs on the thread of `io` with everything that has come.
  using Take = std::function<void(std::vector<Entry>)>;
  EventQueue(boost::asio::io_context* io, Take take) : io_(io), take_(std::move(take)) {}

  // A sink whose events arrive with this ticket. Any thread.
  std::shared_ptr<AnswerSink> MakeSink(uint64_t ticket);

  void Push(uint64_t ticket, Events events);  // any thread
  // No event is taken after this returns, and `io` is not touched. On the I/O thread, or after it
  // has ended.
  void Close();

 private:
  void Drain();

  // Not Abseil's: the thread sanitizer does not see through the one that Debian builds.
  std::mutex mutex_;
  // Under mutex_.
  boost::asio::io_context* io_;
  std::vector<Entry> waiting_;
  bool woken_ = false;
  Take take_;  // of the I/O thread
};

}  // namespace cuvil::server::http
