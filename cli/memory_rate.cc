#include "cli/memory_rate.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "cli/process.h"
#include "runtime/arena.h"

namespace cuvil::cli {
namespace {

// Beyond the last-level cache a virtual machine can have to itself, small enough to fill quickly.
constexpr int64_t kBytes = int64_t{512} << 20;
constexpr int kPasses = 5;

using Vector = uint64_t __attribute__((vector_size(64)));

// Eight sums, so that no addition waits for another.
uint64_t Sum(const uint8_t* data, int64_t bytes) {
  constexpr int kStreams = 8;
  Vector sums[kStreams] = {};
  const Vector* at = reinterpret_cast<const Vector*>(data);
  const Vector* end = at + bytes / static_cast<int64_t>(sizeof(Vector));
  constexpr int64_t kAhead = 4096 / sizeof(Vector);  // 4 KiB, as kernels prefetch their weights
  for (; at + kStreams <= end; at += kStreams) {
    for (int i = 0; i < kStreams; ++i) {
      __builtin_prefetch(at + i + kAhead);
      sums[i] += at[i];
    }
  }
  uint64_t sum = 0;
  for (const Vector& v : sums) {
    for (int i = 0; i < 8; ++i) sum += v[i];
  }
  return sum;
}

}  // namespace

double MeasureReadRate(int threads) {
  auto arena = runtime::Arena::Map(kBytes);
  if (!arena.ok()) return 0;
  const int64_t share = kBytes / threads / 4096 * 4096;
  std::atomic<uint64_t> sink{0};
  double best = 0, start = 0;
  int pass = 0;
  std::barrier line(threads, [&]() noexcept {
    const double now = Now();
    if (pass > 0) best = std::max(best, static_cast<double>(share * threads) / (now - start) / 1e9);
    start = now;
    ++pass;
  });
  const auto work = [&](int index) {
    uint8_t* begin = arena->data() + index * share;
    std::memset(begin, 1, static_cast<size_t>(share));  // pages must exist to be read
    line.arrive_and_wait();
    for (int i = 0; i < kPasses; ++i) {
      sink.fetch_add(Sum(begin, share), std::memory_order_relaxed);
      line.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  return best;
}

}  // namespace cuvil::cli
