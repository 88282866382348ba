#include "server/ops/watchdog.h"

#include <algorithm>

namespace cuvil::ops {

int64_t Watchdog::Nanos(Time now) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
}

void Watchdog::StepBegin(Time now) { waiting_since_.store(Nanos(now)); }

void Watchdog::StepEnd(Time now, bool work_waiting) {
  waiting_since_.store(work_waiting ? Nanos(now) : kIdle);
}

void Watchdog::Waiting(Time now, bool work_waiting) {
  if (!work_waiting) {
    waiting_since_.store(kIdle);
    return;
  }
  // More work is no progress: only the first arrival starts the clock.
  int64_t idle = kIdle;
  waiting_since_.compare_exchange_strong(idle, Nanos(now));
}

void Watchdog::Progress(Time now) {
  int64_t since = waiting_since_.load();
  // Only while work waits: a step that has ended meanwhile must not be begun again.
  while (since != kIdle && !waiting_since_.compare_exchange_weak(since, Nanos(now))) {
  }
}

void Watchdog::Poll(Time now, int64_t steps, bool work_waiting) {
  if (steps != polled_steps_) {
    polled_steps_ = steps;
    StepEnd(now, work_waiting);
  } else {
    Waiting(now, work_waiting);
  }
}

std::chrono::nanoseconds Watchdog::Stalled(Time now) const {
  const int64_t since = waiting_since_.load();
  return std::chrono::nanoseconds(since == kIdle ? 0 : std::max<int64_t>(0, Nanos(now) - since));
}

bool Watchdog::Alive(Time now) {
  const int64_t since = waiting_since_.load();
  if (limit_ == 0 || since == kIdle || Nanos(now) - since <= limit_) return true;
  if (tripped_at_.exchange(since) != since) trips_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace cuvil::ops
