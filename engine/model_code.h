// The code of a model: all of it, or at first only what the widest plan needs, which can run every
// step. Then a thread of its own, of low priority, emits the rest, publishes the whole and writes
// the cache (docs/adr/0012-serve-first.md). Whoever bound addresses asks whole() between steps.
//
// Shared by a model and what is left of it asleep. Any thread. Once whole, immutable.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "compiler/driver/cache.h"
#include "compiler/driver/compile.h"

namespace cuvil::engine {

class ModelCode {
 public:
  // Begins to emit the rest, if there is one. `cache`: that of the compilation, or null.
  // `before_rest` runs on the thread first, and its error ends it; null: nothing does. When the
  // system gives no thread, the rest is emitted before this returns.
  ModelCode(driver::Compiled compiled, std::unique_ptr<driver::ArtifactCache> cache,
            std::function<absl::Status()> before_rest = nullptr);
  // Gives the rest up, and waits for the kernels that are being emitted.
  ~ModelCode();
  ModelCode(const ModelCode&) = delete;
  ModelCode& operator=(const ModelCode&) = delete;

  // Whether every plan has code; else only the last one has. No lock.
  bool whole() const { return whole_.load(std::memory_order_acquire); }
  // The newest there is: the whole, after whole() was true.
  std::shared_ptr<const driver::Compiled> compiled() const;
  // Of the objects; those that are still to be emitted are estimated, rather too large.
  int64_t bytes() const;

  // How the rest ended.
  struct End {
    absl::Status status;     // an error: the model goes on with the widest plan
    std::string cache_note;  // why the whole could not be written; empty otherwise
    double seconds = 0;      // from the start of the compilation until the code was whole
  };
  // Waits until the rest is emitted and written, or was given up. At once without a rest.
  End Finish() const;

 private:
  void EmitRest(const std::function<absl::Status()>& before_rest);

  const std::unique_ptr<driver::ArtifactCache> cache_;
  std::atomic<bool> whole_{false}, cancel_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::shared_ptr<const driver::Compiled> compiled_;  // guarded by mutex_
  End end_;                                           // guarded by mutex_
  bool has_ended_ = false;                            // guarded by mutex_
  std::thread thread_;
};

// Of all objects of a program, as CodeImage counts them. A kernel that is still to be emitted
// counts as much as the largest there is.
int64_t CodeBytes(const runtime::Program& program);

}  // namespace cuvil::engine
