// Executor: runs a list of kernel launches on a fixed set of CPU workers. The thread that calls Run
// is worker 0; the executor owns workers 1..n-1, which spin about 20 us for the next launch and
// then sleep on a futex.
//
//   claim_     sequence : unclaimed tiles of the current launch    one atomic word, claimed by CAS
//   unfinished_  tiles of the current launch not yet finished
//
// Whoever finishes the last tile of a launch publishes the next one, so there is no leader, and a
// worker that holds no tile (descheduled, or still waking up) delays nobody: a stolen core costs
// one tile, not the step. A launch starts only after every tile of the one before it is finished
// and its writes are visible. Launches of one tile run on the thread that reached them, without
// waking anyone.
//
// Inside a step there is no allocation, lock or log, and no syscall unless a worker has to sleep or
// be woken. Every tile runs with default floating-point control (round to nearest, subnormals kept,
// exceptions masked).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "runtime/parking.h"

namespace cuvil::runtime {

// One tile of a kernel. `scratch` belongs to the worker and keeps its contents between the tiles a
// worker runs in one launch; `first` is 1 on the first of them, else 0.
using KernelFn = void (*)(uint8_t* const* buffers, const int64_t* scalars, uint8_t* scratch,
                          int64_t tile, int64_t first);

// A launch with its addresses filled in. Run only reads it.
struct BoundLaunch {
  KernelFn fn = nullptr;
  int64_t tiles = 0;  // 0..2^32-1; 0 skips the launch
  std::vector<uint8_t*> buffers;
  std::vector<int64_t> scalars;
  // Waits until this is nonzero before the launch (its weights landed); null: no wait. Whoever
  // sets it calls notify_all.
  const std::atomic<uint32_t>* ready = nullptr;
};

struct ExecutorOptions {
  int workers = 1;            // 1..kWorkersMax, the calling thread included
  int64_t scratch_bytes = 0;  // per worker: the most any kernel asks for
  bool pin = false;           // pins worker i >= 1 to the i-th CPU this process may use
};

// Far above any machine we know; a wild number is a mistake, not a wish.
inline constexpr int kWorkersMax = 1024;

class Executor {
 public:
  // InvalidArgument for options out of range; ResourceExhausted when the system refuses memory or
  // threads.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the launches in order and returns when the last is finished. One call at a time, from any
  // thread.
  void Run(absl::Span<const BoundLaunch> launches) { RunStep(launches, nullptr); }

  // As Run, and stores the nanoseconds each launch took (its wait for weights left out) in
  // ns[0..launches.size()).
  void RunTimed(absl::Span<const BoundLaunch> launches, absl::Span<int64_t> ns);

  int workers() const { return static_cast<int>(workers_.size()); }
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Worker {
    Executor* executor = nullptr;
    uint8_t* scratch = nullptr;
    int64_t mapped = 0;
    int cpu = -1;
    pthread_t thread{};
    bool started = false;
  };

  Executor() = default;
  absl::Status MapScratch(Worker* worker);
  absl::Status StartThread(int index);
  static void* ThreadMain(void* worker);

  void RunStep(absl::Span<const BoundLaunch> launches, int64_t* ns);
  void WorkOnCurrent(uint8_t* scratch);
  void Advance(uint8_t* scratch);
  void Publish(const BoundLaunch& launch);
  void FinishLaunch();
  bool HasTiles() const;

  int64_t scratch_bytes_ = 0;
  std::vector<Worker> workers_;

  // The step: written only by the thread that advances it, while no tile is out.
  absl::Span<const BoundLaunch> launches_;
  int64_t* ns_ = nullptr;
  size_t next_ = 0;                       // the launch after the current one
  const BoundLaunch* current_ = nullptr;  // read by whoever holds a tile of it
  int64_t started_ns_ = 0;
  uint32_t sequence_ = 0;

  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};
  alignas(64) std::atomic<bool> step_done_{true};
  std::atomic<bool> stop_{false};
  ParkingLot idle_;    // workers without a tile
  ParkingLot caller_;  // worker 0 waiting for tiles or the end of the step
};

}  // namespace cuvil::runtime
