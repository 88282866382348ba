// StepRunner: runs steps of one model over rows and page tables it is given. Owns the workers, the
// arena, the memory of the pages and the step's input buffers, all mapped before the first step;
// only logits and hidden states grow with the rows wanted. Which page belongs to whom is the
// caller's business.
//
// One owner thread at a time. No step waits for a compiler: while the model's code is not whole,
// the widest plan runs every step, and between two steps the runner binds the others. No bit
// depends on the plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "engine/model.h"
#include "runtime/executor.h"
#include "runtime/step_inputs.h"

namespace cuvil::engine {

enum class Want : uint8_t { kNone, kLast, kAll };  // rows whose logits are computed

// Rows of one sequence in a step.
struct StepRows {
  absl::Span<const int32_t> tokens;
  int64_t begin = 0;  // position of tokens[0]
  // Page of each run of page_tokens() positions, from position 0 to the last of `tokens`. -1: the
  // page is gone; no row sees a key in it.
  absl::Span<const int32_t> pages;
  Want want = Want::kLast;
  // A row at position i sees keys p <= i with p < sinks or p > i - window. The window must not be
  // shorter than the model's own.
  int64_t window = runtime::kNoWindow, sinks = 0;
};

struct RunnerOptions {
  int64_t pages = 0;
  int sequences_max = 64;
  bool pin = false;  // pins the workers to CPUs
};

struct LaunchTime {
  std::string label, kernel;
  int64_t tiles = 0, ns = 0;
};

class StepRunner {
 public:
  // InvalidArgument for a pool that is too large to count, ResourceExhausted when the system
  // refuses memory or threads.
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(std::shared_ptr<const Model> model,
                                                            const RunnerOptions& options);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // What Step refuses, without looking at the page tables; adds up rows and wanted logits.
  absl::Status Check(absl::Span<const StepRows> rows, int64_t* total, int64_t* outs) const;

  // Runs one step; the rows' keys and values are in their pages afterwards. InvalidArgument for no
  // or too many rows, a token outside the vocabulary, a position outside the context; nothing has
  // run then. REQUIRES: page tables as StepRows says. `hidden`: hidden states of all rows as well.
  // With `times`, what each launch took.
  absl::Status Step(absl::Span<const StepRows> rows, bool hidden = false,
                    std::vector<LaunchTime>* times = nullptr);

  // Logits of the last step until the next: row i belongs to the i-th wanted row in order.
  // vocab_size() values; a mutable row has room for that rounded up to 64, as the sampler wants it.
  int64_t logit_rows() const { return logit_rows_; }
  absl::Span<const float> logits(int64_t row) const;
  float* mutable_logits(int64_t row) { return logits_.data() + row * logit_stride_; }
  // Hidden state of a row of the last step, after the last norm: embedding_size() values.
  absl::Span<const float> hidden(int64_t row) const;

  const Model& model() const { return *model_; }
  int64_t rows_max() const;
  int64_t context() const { return context_; }
  int64_t vocab_size() const { return model_->config().vocab_size; }
  int64_t embedding_size() const { return model_->config().n_embd; }
  int64_t pages() const { return page_count_; }
  int page_tokens() const { return page_tokens_; }
  int64_t page_bytes() const;
  // Bytes of the arena, the workers' scratch and the results of wanted rows.
  int64_t workspace_bytes() const;
  runtime::Executor& executor() { return *executor_; }
  // Whether steps may use every plan: what was true of the model's code at the last step.
  bool whole() const { return whole_; }

 private:
  struct Inputs;
  struct Cursor;

  explicit StepRunner(std::shared_ptr<const Model> model);
  absl::Status Allocate(const RunnerOptions& options);
  void BindPlans();
  void FillInputs(absl::Span<const StepRows> rows, int64_t total, const runtime::Plan& plan,
                  int64_t* header);
  void FillItems(const StepRows& rows, int64_t total, const runtime::Plan& plan, Cursor& at);
  void FillRope(int64_t row, int64_t position);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<runtime::Executor> executor_;
  std::shared_ptr<const driver::Compiled> compiled_;  // whose code is bound
  bool whole_ = false;
  std::vector<std::vector<runtime::BoundLaunch>> bound_;  // per plan; empty: it has no code yet
  uint8_t* arena_ = nullptr;
  size_t arena_bytes_ = 0;
  uint8_t* kv_ = nullptr;
  size_t kv_bytes_ = 0;
  int64_t page_count_ = 0;
  int page_tokens_ = 32;
  int64_t context_ = 0;
  int sequences_max_ = 0;
  std::unique_ptr<Inputs> in_;
  std::vector<float> logits_, hidden_;
  int64_t logit_rows_ = 0, logit_stride_ = 0;
};

}  // namespace cuvil::engine
