// ParkingLot: where threads sleep until a condition another thread makes true. The waker pays one
// load when nobody sleeps and a futex call only when somebody does.
//
// The condition lives in the caller's own atomics. The waker writes it with memory_order_seq_cst,
// then calls Wake; Wait reads it with memory_order_seq_cst. Either the waker sees the sleeper or
// the sleeper sees the condition, so no wake is lost.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace cuvil::runtime {

// Long enough to bridge the gap between two launches, short enough that an idle thread gives its
// core back before anyone misses it.
inline constexpr int64_t kSpinNs = 20'000;

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);  // vDSO: not a syscall
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class alignas(64) ParkingLot {
 public:
  // Returns once `condition()` holds: spins for at most kSpinNs, then sleeps between checks.
  template <typename Condition>
  void Wait(Condition condition) {
    if (Spin(condition)) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t ticket = ticket_.load(std::memory_order_seq_cst);
      if (condition()) break;
      syscall(SYS_futex, &ticket_, FUTEX_WAIT_PRIVATE, ticket, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  // Wakes up to `count` sleepers to look at their condition again.
  void Wake(int count) {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    ticket_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &ticket_, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
  }

 private:
  template <typename Condition>
  bool Spin(Condition& condition) {
    if (condition()) return true;
    const int64_t deadline = MonotonicNs() + kSpinNs;
    do {
      // 16 pauses are about a microsecond: reading the clock more often buys nothing.
      for (int i = 0; i < 16; ++i) {
        CpuPause();
        if (condition()) return true;
      }
    } while (MonotonicNs() < deadline);
    return false;
  }

  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> ticket_{0};
};

}  // namespace cuvil::runtime
