#include "engine/model_code.h"

#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace cuvil::engine {
namespace {

// Steps and weights come first, and a machine that is busy with them still gives the emitting
// threads about a tenth of each core.
constexpr int kNice = 10;

}  // namespace

int64_t CodeBytes(const runtime::Program& program) {
  int64_t largest = 0, bytes = 0;
  for (const runtime::KernelDecl& k : program.kernels) largest = std::max(largest, k.code_bytes);
  for (const runtime::KernelDecl& k : program.kernels)
    bytes += k.code_bytes > 0 ? k.code_bytes : largest;
  return bytes;
}

ModelCode::ModelCode(driver::Compiled compiled, std::unique_ptr<driver::ArtifactCache> cache,
                     std::function<absl::Status()> before_rest)
    : cache_(std::move(cache)),
      compiled_(std::make_shared<const driver::Compiled>(std::move(compiled))) {
  if (compiled_->rest == nullptr) {
    end_.seconds = compiled_->seconds;
    has_ended_ = true;
    whole_.store(true, std::memory_order_release);
    return;
  }
  try {
    thread_ = std::thread([this, before_rest] {
      // In Linux this is of the calling thread, and those it starts inherit it.
      setpriority(PRIO_PROCESS, 0, kNice);
      EmitRest(before_rest);
    });
  } catch (const std::system_error&) {
    EmitRest(before_rest);
  }
}

ModelCode::~ModelCode() {
  cancel_.store(true);
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const driver::Compiled> ModelCode::compiled() const {
  const std::lock_guard lock(mutex_);
  return compiled_;
}

int64_t ModelCode::bytes() const { return CodeBytes(*compiled()->program); }

ModelCode::End ModelCode::Finish() const {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return has_ended_; });
  return end_;
}

void ModelCode::EmitRest(const std::function<absl::Status()>& before_rest) {
  const std::shared_ptr<const driver::Compiled> first = compiled();
  End end;
  if (before_rest) end.status = before_rest();
  if (end.status.ok()) {
    absl::StatusOr<driver::Compiled> rest = driver::CompileRest(*first, &cancel_);
    end.status = rest.status();
    if (rest.ok()) {
      const auto whole = std::make_shared<const driver::Compiled>(*std::move(rest));
      end.seconds = whole->seconds;
      {
        const std::lock_guard lock(mutex_);
        compiled_ = whole;
      }
      // Steps use it from now on; writing it waits for a disk.
      whole_.store(true, std::memory_order_release);
      end.cache_note = driver::StoreRest(*first, *whole);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    has_ended_ = true;
  }
  ended_.notify_all();
}

}  // namespace cuvil::engine
