#include "server/grpc/event_thread.h"

#include <utility>

#include "absl/time/clock.h"

namespace cuvil::server::grpc {

class EventThread::Sink : public AnswerSink {
 public:
  Sink(std::shared_ptr<EventThread> thread, std::shared_ptr<EventTaker> taker)
      : thread_(std::move(thread)), taker_(std::move(taker)) {}
  void OnEvents(Events events) override { thread_->Push(taker_, std::move(events)); }

 private:
  const std::shared_ptr<EventThread> thread_;
  const std::shared_ptr<EventTaker> taker_;
};

EventThread::EventThread(std::function<absl::Duration()> tick)
    : tick_(std::move(tick)), thread_([this] { Run(); }) {}

EventThread::~EventThread() { Stop(); }

std::shared_ptr<AnswerSink> EventThread::MakeSink(std::shared_ptr<EventTaker> taker) {
  return std::make_shared<Sink>(shared_from_this(), std::move(taker));
}

void EventThread::Push(std::shared_ptr<EventTaker> taker, Events events) {
  std::unique_lock lock(mutex_);
  if (stop_) return;
  waiting_.push_back({std::move(taker), std::move(events)});
  if (waiting_.size() == 1) changed_.notify_one();
}

void EventThread::TickSoon() {
  std::unique_lock lock(mutex_);
  tick_now_ = true;
  changed_.notify_one();
}

void EventThread::Stop() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::vector<Entry> dropped;
  std::unique_lock lock(mutex_);
  dropped.swap(waiting_);
}

void EventThread::Run() {
  absl::Time next_tick = absl::Now() + tick_();
  for (;;) {
    std::vector<Entry> taken;
    bool tick = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, absl::ToChronoTime(next_tick),
                          [this] { return stop_ || tick_now_ || !waiting_.empty(); });
      if (stop_) return;
      tick = std::exchange(tick_now_, false);
      taken.swap(waiting_);
    }
    for (Entry& entry : taken) entry.taker->Take(std::move(entry.events));
    if (tick || absl::Now() >= next_tick) next_tick = absl::Now() + tick_();
  }
}

}  // namespace cuvil::server::grpc
