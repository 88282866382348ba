// WeightStore: the packed weights of one model, in one arena of huge pages where the kernel grants
// them. Start checks every tensor at once, then background threads pack segment after segment, so
// that a step can run its first layers while the last are still being packed.
//
//   Start -> tensors checked -> segment 0 packed, ready(0) = 1 -> segment 1 ... -> Wait returns
//
// Owned by one model; the bytes of a segment are immutable once its ready flag is nonzero. The
// tensors' bytes must stay mapped until Wait returns or the store is destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status.h"
#include "runtime/program.h"

namespace cuvil::runtime {

// A tensor of the model file: `rows` rows of `row_elements` elements, row after row in `data`.
struct TensorView {
  DType dtype = DType::kF32;
  absl::Span<const uint8_t> data;
  int64_t row_elements = 0;
  int64_t rows = 0;
};
using TensorSource = std::function<absl::StatusOr<TensorView>(std::string_view name)>;

struct WeightOptions {
  int threads = 1;  // background threads, at most kPackThreadsMax; 0 packs before Start returns
  // Called once for a tensor when no weight needs its bytes any more, so that the pages behind
  // them can be dropped. From a packing thread, several at a time.
  std::function<void(std::string_view name)> release;
};

// Packing is bound by memory bandwidth long before this many threads.
inline constexpr int kPackThreadsMax = 64;

// Values of a ready flag; anything but kPending lets launches go on.
inline constexpr uint32_t kPending = 0, kLanded = 1, kCancelled = 2;

class WeightStore {
 public:
  // Checks `program.weights` against the source (called on this thread, before Start returns) and
  // begins packing. InvalidArgument names the tensor, what the file holds and what was wanted;
  // errors of the source are passed on; ResourceExhausted when the arena does not fit.
  static absl::StatusOr<std::unique_ptr<WeightStore>> Start(const Program& program,
                                                            const TensorSource& source,
                                                            WeightOptions options = {});
  // Cancels what is not packed yet and joins the threads.
  ~WeightStore();
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // The flag to wait on before reading weights of the segment (BoundLaunch::ready). Segments land
  // in order: this one's flag covers all before it.
  const std::atomic<uint32_t>* ready(int segment) const;

  // Waits for every segment: OK, or Cancelled after Cancel. Any thread.
  absl::Status Wait() const;

  // Stops packing; segments that have not landed are marked kCancelled and hold no usable data.
  void Cancel();

  // Where a weight lies, 64-byte aligned.
  uint8_t* data(int weight) const;
  // The weights region: 2 MiB aligned, program.weights_bytes long.
  uint8_t* base() const;
  int64_t bytes() const;

  // Bytes of the region that are huge pages right now, as the kernel reports them; 0 if it does
  // not say. Reads /proc: for reports, not for loops.
  int64_t HugePageBytes() const;

 private:
  class Impl;
  explicit WeightStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvil::runtime
