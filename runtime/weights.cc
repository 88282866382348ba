#include "runtime/weights.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/blocks.h"
#include "base/checked.h"
#include "runtime/arena.h"
#include "runtime/pack.h"
#include "runtime/validate.h"

namespace cuvil::runtime {
namespace {

// Small enough to share a layer among threads, large enough that claiming a job costs nothing.
constexpr int64_t kJobBytes = 1 << 20;

struct Tensor {
  std::string name;
  TensorView view;
  int64_t row_bytes = 0;
  std::atomic<int64_t> users{0};  // jobs that still read it
};

// RowRun with its tensor looked up; null for rows of zeros.
struct Run {
  Tensor* tensor = nullptr;
  int64_t source_row = 0;
  int64_t first = 0, last = 0;  // packed rows [first, last)
};

struct Weight {
  WeightDecl decl;
  DType source = DType::kF32;  // type of all its tensors
  std::vector<Run> runs;
  int64_t rows = 0;
};

// Packed rows [first, last) of one weight.
struct Job {
  int weight = 0;
  int64_t first = 0, last = 0;
};

absl::Status CheckTensor(const Tensor& tensor, const RowRun& run, const WeightDecl& decl) {
  const TensorView& view = tensor.view;
  const auto bad = [&](absl::string_view got, absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "' has ", got,
                                                   ", weight '", decl.name, "' wants ", wanted,
                                                   "; use the file the program was compiled for"));
  };
  const std::string type(Info(view.dtype).name);
  if (decl.prep == Prep::kStrips ? !CanPack(view.dtype, decl.layout) : !CanDecode(view.dtype)) {
    return bad(absl::StrCat("type ", type), decl.prep == Prep::kStrips
                                                ? absl::StrCat("layout ", Sv(Name(decl.layout)))
                                                : "a type that decodes to f32");
  }
  if (view.row_elements != decl.k) {
    return bad(absl::StrCat("rows of ", view.row_elements), absl::StrCat("rows of ", decl.k));
  }
  if (run.row > view.rows || run.rows > view.rows - run.row) {
    return bad(absl::StrCat(view.rows, " rows"),
               absl::StrCat("rows ", run.row, "..", run.row + run.rows));
  }
  int64_t bytes;
  if (!CheckedMul(tensor.row_bytes, view.rows, &bytes) ||
      static_cast<uint64_t>(bytes) > view.data.size()) {
    return bad(absl::StrCat(view.data.size(), " bytes"),
               absl::StrCat(view.rows, " rows of ", tensor.row_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

class WeightStore::Impl {
 public:
  explicit Impl(WeightOptions options) : options_(std::move(options)) {}
  ~Impl() {
    Cancel();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Resolve(const Program& program, const TensorSource& source);
  absl::Status Begin(const Program& program);
  void Cancel();
  absl::Status Wait() const;

  Arena arena_;
  std::vector<Weight> weights_;
  std::deque<std::atomic<uint32_t>> ready_;  // per segment

 private:
  absl::StatusOr<Tensor*> Find(const std::string& name, const TensorSource& source);
  void MakeJobs();
  void PackJobs();
  void PackStrips(const Weight& weight, const Job& job);
  void PackFloats(const Weight& weight, const Job& job);
  void FinishJob(const Job& job);
  void LandFinished();
  void Land(int segment, uint32_t state);

  const WeightOptions options_;
  std::unordered_map<std::string, Tensor> tensors_;
  std::vector<Job> jobs_;
  std::deque<std::atomic<int64_t>> open_jobs_;  // per segment
  std::mutex landing_;
  int landed_ = 0;  // segments before this one have landed; guarded by landing_
  std::atomic<size_t> next_job_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

absl::StatusOr<Tensor*> WeightStore::Impl::Find(const std::string& name,
                                                const TensorSource& source) {
  const auto [it, fresh] = tensors_.try_emplace(name);
  Tensor& tensor = it->second;
  if (!fresh) return &tensor;
  tensor.name = name;
  ASSIGN_OR_RETURN(tensor.view, source(name));
  absl::StatusOr<size_t> row_bytes = RowBytes(tensor.view.dtype, tensor.view.row_elements);
  if (!row_bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "': ", row_bytes.status().message()));
  }
  tensor.row_bytes = static_cast<int64_t>(*row_bytes);
  return &tensor;
}

absl::Status WeightStore::Impl::Resolve(const Program& program, const TensorSource& source) {
  weights_.reserve(program.weights.size());
  for (const WeightDecl& decl : program.weights) {
    Weight weight{.decl = decl};
    const Tensor* typed = nullptr;
    for (const RowRun& row_run : decl.runs) {
      Run run{.source_row = row_run.row, .first = weight.rows, .last = weight.rows + row_run.rows};
      weight.rows = run.last;
      if (!row_run.tensor.empty()) {
        ASSIGN_OR_RETURN(run.tensor, Find(row_run.tensor, source));
        RETURN_IF_ERROR(CheckTensor(*run.tensor, row_run, decl));
        if (typed != nullptr && run.tensor->view.dtype != weight.source) {
          return absl::InvalidArgumentError(absl::StrCat(
              "tensor '", row_run.tensor, "' has type ", Sv(Info(run.tensor->view.dtype).name),
              ", weight '", decl.name, "' wants ", Sv(Info(weight.source).name), " as in tensor '",
              typed->name, "'; use the file the program was compiled for"));
        }
        typed = run.tensor;
        weight.source = typed->view.dtype;
      }
      weight.runs.push_back(run);
    }
    // A matrix of nothing but zeros: any source the layout takes.
    if (typed == nullptr) weight.source = *ParseDType(Name(decl.layout));
    weights_.push_back(std::move(weight));
  }
  return absl::OkStatus();
}

void WeightStore::Impl::MakeJobs() {
  std::vector<int> order(weights_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
    return weights_[a].decl.segment < weights_[b].decl.segment;
  });
  for (const int index : order) {
    const Weight& weight = weights_[index];
    const int64_t strip = weight.decl.prep == Prep::kStrips
                              ? WeightStripBytes(weight.decl.layout, weight.decl.k)
                              : weight.decl.k * 4 * kStripRows;
    const int64_t step = std::max<int64_t>(1, kJobBytes / strip) * kStripRows;
    for (int64_t row = 0; row < weight.rows; row += step) {
      const Job job{index, row, std::min(row + step, weight.rows)};
      jobs_.push_back(job);
      open_jobs_[weight.decl.segment].fetch_add(1, std::memory_order_relaxed);
      for (const Run& run : weight.runs) {
        if (run.tensor == nullptr || run.first >= job.last || run.last <= job.first) continue;
        run.tensor->users.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }
}

absl::Status WeightStore::Impl::Begin(const Program& program) {
  ASSIGN_OR_RETURN(arena_, Arena::Map(program.weights_bytes));
  for (int i = 0; i < program.segments; ++i) {
    ready_.emplace_back(kPending);
    open_jobs_.emplace_back(0);
  }
  MakeJobs();
  LandFinished();  // those without weights
  const int threads = std::clamp(options_.threads, 0, kPackThreadsMax);
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { PackJobs(); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those that started do the work, or this one does.
  }
  if (threads_.empty()) PackJobs();
  return absl::OkStatus();
}

void WeightStore::Impl::PackJobs() {
  while (!stop_.load(std::memory_order_relaxed)) {
    const size_t index = next_job_.fetch_add(1, std::memory_order_relaxed);
    if (index >= jobs_.size()) return;
    const Job& job = jobs_[index];
    const Weight& weight = weights_[job.weight];
    weight.decl.prep == Prep::kStrips ? PackStrips(weight, job) : PackFloats(weight, job);
    FinishJob(job);
  }
}

void WeightStore::Impl::PackStrips(const Weight& weight, const Job& job) {
  const int64_t strip_bytes = WeightStripBytes(weight.decl.layout, weight.decl.k);
  size_t run_index = 0;
  for (int64_t strip = job.first / kStripRows; strip < job.last / kStripRows; ++strip) {
    const uint8_t* rows[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      const int64_t row = strip * kStripRows + r;
      while (weight.runs[run_index].last <= row) ++run_index;
      const Run& run = weight.runs[run_index];
      rows[r] = run.tensor == nullptr
                    ? nullptr
                    : run.tensor->view.data.data() +
                          (run.source_row + row - run.first) * run.tensor->row_bytes;
    }
    PackStrip(weight.source, weight.decl.layout, weight.decl.k, rows,
              arena_.data() + weight.decl.offset + strip * strip_bytes);
  }
}

void WeightStore::Impl::PackFloats(const Weight& weight, const Job& job) {
  float* const out = reinterpret_cast<float*>(arena_.data() + weight.decl.offset);
  for (const Run& run : weight.runs) {
    if (run.tensor == nullptr) continue;  // the arena starts as zeros
    const int64_t first = std::max(run.first, job.first), last = std::min(run.last, job.last);
    for (int64_t row = first; row < last; ++row) {
      const uint8_t* source =
          run.tensor->view.data.data() + (run.source_row + row - run.first) * run.tensor->row_bytes;
      DecodeRow(weight.source, source, weight.decl.k, out + row * weight.decl.k);
    }
  }
}

void WeightStore::Impl::FinishJob(const Job& job) {
  const Weight& weight = weights_[job.weight];
  for (const Run& run : weight.runs) {
    if (run.tensor == nullptr || run.first >= job.last || run.last <= job.first) continue;
    const bool last_user = run.tensor->users.fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (last_user && options_.release) options_.release(run.tensor->name);
  }
  const int segment = weight.decl.segment;
  if (open_jobs_[segment].fetch_sub(1, std::memory_order_acq_rel) == 1) LandFinished();
}

// Segments land in order, so waiting for one is waiting for all before it.
void WeightStore::Impl::LandFinished() {
  const std::lock_guard lock(landing_);
  while (landed_ < static_cast<int>(ready_.size()) &&
         open_jobs_[landed_].load(std::memory_order_acquire) == 0) {
    Land(landed_++, kLanded);
  }
}

// The first state to arrive stays.
void WeightStore::Impl::Land(int segment, uint32_t state) {
  uint32_t pending = kPending;
  ready_[segment].compare_exchange_strong(pending, state, std::memory_order_acq_rel);
  ready_[segment].notify_all();
}

void WeightStore::Impl::Cancel() {
  stop_.store(true, std::memory_order_relaxed);
  for (size_t i = 0; i < ready_.size(); ++i) Land(static_cast<int>(i), kCancelled);
}

absl::Status WeightStore::Impl::Wait() const {
  bool cancelled = false;
  for (const std::atomic<uint32_t>& flag : ready_) {
    flag.wait(kPending, std::memory_order_acquire);
    cancelled |= flag.load(std::memory_order_acquire) != kLanded;
  }
  if (cancelled) return absl::CancelledError("loading the weights was cancelled");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightStore>> WeightStore::Start(const Program& program,
                                                                const TensorSource& source,
                                                                WeightOptions options) {
  RETURN_IF_ERROR(ValidateWeights(program));
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Resolve(program, source));
  RETURN_IF_ERROR(impl->Begin(program));
  return std::unique_ptr<WeightStore>(new WeightStore(std::move(impl)));
}

WeightStore::WeightStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightStore::~WeightStore() = default;

const std::atomic<uint32_t>* WeightStore::ready(int segment) const {
  CUVIL_CHECK(segment >= 0 && static_cast<size_t>(segment) < impl_->ready_.size(),
              "segment out of range");
  return &impl_->ready_[segment];
}

absl::Status WeightStore::Wait() const { return impl_->Wait(); }
void WeightStore::Cancel() { impl_->Cancel(); }
uint8_t* WeightStore::base() const { return impl_->arena_.data(); }
int64_t WeightStore::bytes() const { return impl_->arena_.bytes(); }
int64_t WeightStore::HugePageBytes() const { return impl_->arena_.HugePageBytes(); }

uint8_t* WeightStore::data(int weight) const {
  CUVIL_CHECK(weight >= 0 && static_cast<size_t>(weight) < impl_->weights_.size(),
              "weight out of range");
  return impl_->arena_.data() + impl_->weights_[weight].decl.offset;
}

}  // namespace cuvil::runtime
