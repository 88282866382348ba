#include "compiler/driver/emit_kernels.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <system_error>
#include <thread>

#include "base/build_id.h"
#include "compiler/emit/module/module.h"

namespace cuvil::driver {
namespace {

std::atomic<int64_t> g_kernels_emitted{0};

// The largest first, so that threads finish together.
std::vector<size_t> EmitOrder(absl::Span<const kernel::Kernel> kernels) {
  std::vector<size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return kernels[a].ops.size() > kernels[b].ops.size();
  });
  return order;
}

}  // namespace

void AddCompilerIds(Json& components) {
  components["compiler"] = BuildId();
  components["emitter"] = emit::ModuleBuildId();
  components["llvm"] = emit::LlvmBuildId();
}

bool CompilerIdsKnown() { return !BuildId().empty() && !emit::ModuleBuildId().empty(); }

int64_t KernelsEmitted() { return g_kernels_emitted.load(); }

absl::StatusOr<std::vector<emit::Emitted>> EmitKernels(absl::Span<const kernel::Kernel> kernels,
                                                       const emit::Target& target, int threads,
                                                       const emit::EmitOptions& options,
                                                       const std::atomic<bool>* cancel) {
  const std::vector<size_t> order = EmitOrder(kernels);
  std::vector<emit::Emitted> emitted(kernels.size());
  std::vector<absl::Status> statuses(kernels.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < order.size();) {
      const size_t k = order[i];
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
        statuses[k] = absl::CancelledError("compiling was given up: nobody needs the kernels");
        continue;
      }
      absl::StatusOr<emit::Emitted> result = emit::EmitObject(kernels[k], target, options);
      g_kernels_emitted.fetch_add(1);
      statuses[k] = result.status();
      if (result.ok()) emitted[k] = *std::move(result);
    }
  };
  std::vector<std::thread> others;
  try {
    for (size_t t = 1; t < kernels.size() && static_cast<int64_t>(t) < threads; ++t) {
      others.emplace_back(work);
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that started and this one do the work.
  }
  work();
  for (std::thread& thread : others) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return emitted;
}

absl::StatusOr<std::shared_ptr<const emit::CodeImage>> LinkObjects(const Objects& objects) {
  std::vector<emit::CodeImage::Object> linked;
  for (const auto& [symbol, bytes] : objects) linked.push_back({symbol, bytes});
  return emit::CodeImage::Link(linked);
}

}  // namespace cuvil::driver
