// Whether steps make progress: pure logic over times it is given, one per model. The step thread
// tells it of steps, submitters of waiting work; health checks and the service manager's timer ask.
// All methods may be called from any thread and none blocks.
//
// Work is waiting from Waiting(now, true) or StepBegin until a step ends with nothing left. While
// it waits, something must happen within the limit: a step begins or ends, or work first arrives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cuvil::ops {

class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // limit 0: always alive.
  explicit Watchdog(std::chrono::nanoseconds limit) : limit_(limit.count()) {}

  void StepBegin(Time now);
  void StepEnd(Time now, bool work_waiting);
  // Outside a step: work has arrived, or the last was withdrawn.
  void Waiting(Time now, bool work_waiting);

  // What is being worked on is not stuck, though no step shows it: the clock of waiting work starts
  // anew.
  void Progress(Time now);

  // For one who only sees a count of steps and whether there is work: any change of the count is
  // progress. Call often against the limit, from one thread.
  void Poll(Time now, int64_t steps, bool work_waiting);

  // False once no progress was made for longer than the limit while work waits. True again when a
  // step gets through. The first false of each stall counts as a trip.
  bool Alive(Time now);

  int64_t trips() const { return trips_.load(std::memory_order_relaxed); }
  // How long work has been waiting without progress; zero when idle.
  std::chrono::nanoseconds Stalled(Time now) const;

 private:
  static constexpr int64_t kIdle = INT64_MIN;
  static int64_t Nanos(Time now);

  const int64_t limit_;
  // Time of the last progress while work waits; kIdle when none does. One word, so that a reader
  // never sees the time of one stall with the state of another.
  std::atomic<int64_t> waiting_since_{kIdle};
  std::atomic<int64_t> tripped_at_{kIdle};  // waiting_since_ of the stall that was counted
  std::atomic<int64_t> trips_{0};
  int64_t polled_steps_ = 0;  // the poller's
};

}  // namespace cuvil::ops
