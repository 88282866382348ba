#include "runtime/executor.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>

#include "base/checked.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace cuvil::runtime {
namespace {

constexpr int64_t kHugePage = 2 << 20;

// Default floating-point control for as long as it lives.
class FloatDefaults {
 public:
#if defined(__x86_64__)
  // 0x1f80: round to nearest, no FTZ or DAZ, all exceptions masked, no sticky flags.
  FloatDefaults() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatDefaults() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  FloatDefaults() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, xzr");
  }
  ~FloatDefaults() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

 private:
  uint64_t saved_;
#endif
};

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const ExecutorOptions& options) {
  if (options.workers < 1 || options.workers > kWorkersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an executor of ", options.workers, " workers; use 1..", kWorkersMax));
  }
  // 1 GiB a worker: a kernel that asks for more is a planning mistake.
  if (options.scratch_bytes < 0 || options.scratch_bytes > (int64_t{1} << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker scratch of ", options.scratch_bytes, " bytes; use 0..1073741824"));
  }
  std::unique_ptr<Executor> executor(new Executor());
  executor->scratch_bytes_ = options.scratch_bytes;
  executor->workers_.resize(options.workers);
  const std::vector<int> cpus = options.pin ? AllowedCpus() : std::vector<int>();
  for (int i = 0; i < options.workers; ++i) {
    Worker& worker = executor->workers_[i];
    worker.executor = executor.get();
    if (!cpus.empty()) worker.cpu = cpus[i % cpus.size()];
    RETURN_IF_ERROR(executor->MapScratch(&worker));
  }
  for (int i = 1; i < options.workers; ++i) RETURN_IF_ERROR(executor->StartThread(i));
  return executor;
}

absl::Status Executor::MapScratch(Worker* worker) {
  // A mapping of its own: page aligned, and first touched by the worker that uses it.
  const int64_t unit = scratch_bytes_ >= kHugePage ? kHugePage : 4096;
  worker->mapped = AlignUp<int64_t>(std::max<int64_t>(scratch_bytes_, 64), unit);
  void* data =
      mmap(nullptr, worker->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for ", worker->mapped, " bytes of worker scratch; use fewer threads"));
  }
  madvise(data, worker->mapped, MADV_HUGEPAGE);  // advice: nothing depends on it
  worker->scratch = static_cast<uint8_t*>(data);
  return absl::OkStatus();
}

absl::Status Executor::StartThread(int index) {
  // Signals belong to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&workers_[index].thread, nullptr, ThreadMain, &workers_[index]);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start worker ", index, ": ",
                                                     std::strerror(error), "; use fewer threads"));
  }
  workers_[index].started = true;
  pthread_setname_np(workers_[index].thread, absl::StrCat("cuvil-w", index).c_str());
  if (workers_[index].cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(workers_[index].cpu, &set);
    pthread_setaffinity_np(workers_[index].thread, sizeof set, &set);
  }
  return absl::OkStatus();
}

Executor::~Executor() {
  stop_.store(true, std::memory_order_seq_cst);
  idle_.Wake(INT_MAX);
  for (Worker& worker : workers_) {
    if (worker.started) pthread_join(worker.thread, nullptr);
  }
  for (Worker& worker : workers_) {
    if (worker.scratch != nullptr) munmap(worker.scratch, worker.mapped);
  }
}

bool Executor::HasTiles() const {
  return static_cast<uint32_t>(claim_.load(std::memory_order_seq_cst)) != 0;
}

void* Executor::ThreadMain(void* argument) {
  Worker* const worker = static_cast<Worker*>(argument);
  Executor* const executor = worker->executor;
  const FloatDefaults defaults;
  for (;;) {
    executor->idle_.Wait([executor] {
      return executor->HasTiles() || executor->stop_.load(std::memory_order_seq_cst);
    });
    if (executor->stop_.load(std::memory_order_relaxed)) return nullptr;
    executor->WorkOnCurrent(worker->scratch);
  }
}

void Executor::RunTimed(absl::Span<const BoundLaunch> launches, absl::Span<int64_t> ns) {
  CUVIL_CHECK(ns.size() >= launches.size(), "RunTimed needs a place for every launch");
  std::fill_n(ns.begin(), launches.size(), 0);
  RunStep(launches, ns.data());
}

void Executor::RunStep(absl::Span<const BoundLaunch> launches, int64_t* ns) {
  CUVIL_CHECK(step_done_.load(std::memory_order_acquire), "Run is called one step at a time");
  const FloatDefaults defaults;
  uint8_t* const scratch = workers_[0].scratch;
  launches_ = launches;
  ns_ = ns;
  next_ = 0;
  step_done_.store(false, std::memory_order_relaxed);
  Advance(scratch);
  for (;;) {
    WorkOnCurrent(scratch);
    if (step_done_.load(std::memory_order_acquire)) return;
    caller_.Wait([this] { return HasTiles() || step_done_.load(std::memory_order_seq_cst); });
  }
}

// Runs tiles until none is unclaimed; the last to finish a launch starts the next.
void Executor::WorkOnCurrent(uint8_t* scratch) {
  uint64_t word = claim_.load(std::memory_order_relaxed);
  for (;;) {
    if (static_cast<uint32_t>(word) == 0) return;
    // The compare covers the sequence, so a stale word cannot claim a tile of another launch.
    if (!claim_.compare_exchange_weak(word, word - 1, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      continue;
    }
    // A tile is held from here on: the launch stays current until it is given back as finished.
    const BoundLaunch& launch = *current_;
    const uint64_t sequence = word >> 32;
    int64_t finished = 0;
    do {
      const int64_t tile = launch.tiles - static_cast<uint32_t>(word);
      launch.fn(launch.buffers.data(), launch.scalars.data(), scratch, tile, finished == 0);
      ++finished;
      word = claim_.load(std::memory_order_relaxed);
      while (word >> 32 == sequence && static_cast<uint32_t>(word) != 0 &&
             !claim_.compare_exchange_weak(word, word - 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      }
    } while (word >> 32 == sequence && static_cast<uint32_t>(word) != 0);
    if (unfinished_.fetch_sub(finished, std::memory_order_acq_rel) == finished) {
      FinishLaunch();
      Advance(scratch);
    }
    word = claim_.load(std::memory_order_relaxed);
  }
}

void Executor::FinishLaunch() {
  if (ns_ != nullptr) ns_[next_ - 1] = MonotonicNs() - started_ns_;
}

// Moves on to the next launch that needs several tiles, running single tiles on the way, or ends
// the step. Only the thread that finished the last tile (or began the step) is here.
void Executor::Advance(uint8_t* scratch) {
  while (next_ < launches_.size()) {
    const BoundLaunch& launch = launches_[next_++];
    if (launch.tiles == 0) continue;
    if (launch.ready != nullptr) launch.ready->wait(0, std::memory_order_acquire);
    if (ns_ != nullptr) started_ns_ = MonotonicNs();
    if (launch.tiles > 1) return Publish(launch);
    launch.fn(launch.buffers.data(), launch.scalars.data(), scratch, 0, 1);
    FinishLaunch();
  }
  step_done_.store(true, std::memory_order_seq_cst);
  caller_.Wake(1);
}

void Executor::Publish(const BoundLaunch& launch) {
  const int64_t tiles = launch.tiles;
  CUVIL_CHECK(tiles > 0 && tiles <= UINT32_MAX, "a launch has 0..2^32-1 tiles");
  current_ = &launch;
  unfinished_.store(tiles, std::memory_order_relaxed);
  claim_.store(uint64_t{++sequence_} << 32 | static_cast<uint64_t>(tiles),
               std::memory_order_seq_cst);
  // From here on the others may finish the launch, even the step: `launch` may be gone.
  if (workers_.size() == 1) return;
  caller_.Wake(1);
  // This thread takes a tile itself; more sleepers than the remaining tiles would wake in vain.
  idle_.Wake(static_cast<int>(std::min<int64_t>(tiles - 1, INT_MAX)));
}

}  // namespace cuvil::runtime
