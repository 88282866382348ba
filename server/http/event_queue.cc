#include "server/http/event_queue.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace cuvil::server::http {
namespace {

class TicketSink : public AnswerSink {
 public:
  TicketSink(std::shared_ptr<EventQueue> queue, uint64_t ticket)
      : queue_(std::move(queue)), ticket_(ticket) {}
  void OnEvents(Events events) override { queue_->Push(ticket_, std::move(events)); }

 private:
  std::shared_ptr<EventQueue> queue_;
  uint64_t ticket_;
};

}  // namespace

std::shared_ptr<AnswerSink> EventQueue::MakeSink(uint64_t ticket) {
  return std::make_shared<TicketSink>(shared_from_this(), ticket);
}

void EventQueue::Push(uint64_t ticket, Events events) {
  const std::lock_guard lock(mutex_);
  if (io_ == nullptr) return;
  waiting_.push_back({ticket, std::move(events)});
  if (std::exchange(woken_, true)) return;
  boost::asio::post(*io_, [self = shared_from_this()] { self->Drain(); });
}

void EventQueue::Drain() {
  std::vector<Entry> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(waiting_);
    woken_ = false;
    if (io_ == nullptr) return;
  }
  take_(std::move(taken));
}

void EventQueue::Close() {
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
  waiting_.clear();
}

}  // namespace cuvil::server::http
