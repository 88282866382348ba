// Engine: steps of one model over up to sequences_max sequences. Owns the workers, the arena, the
// pages of keys and values, and the step's input buffers. All of it is mapped before the first
// step, only the logits grow with the rows wanted; nothing compiles during a step.
//
// One owner thread at a time. Invariant: every page is free or in exactly one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "engine/model.h"
#include "runtime/executor.h"

namespace cuvil::engine {

struct SequenceId {
  int32_t value = -1;
  bool operator==(const SequenceId&) const = default;
};

enum class Want : uint8_t { kNone, kLast, kAll };  // rows whose logits are computed

// Tokens that one sequence adds in a step, at the positions after those it has.
struct Chunk {
  SequenceId sequence;
  absl::Span<const int32_t> tokens;
  Want want = Want::kLast;
};

struct EngineOptions {
  int64_t kv_tokens = 0;  // pool size in tokens; 0: one full context
  int sequences_max = 64;
  bool pin = false;  // pins the workers to CPUs
};

struct MemoryUse {
  int64_t weights = 0, kv = 0, workspace = 0, code = 0;  // bytes; kv: pages in use
};

class Engine {
 public:
  // InvalidArgument for a pool that is too large to count, ResourceExhausted when the system
  // refuses memory or threads.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                        const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // An empty sequence; ResourceExhausted when sequences_max are live.
  absl::StatusOr<SequenceId> NewSequence();
  // Gives its pages back. REQUIRES here and below: the sequence is live.
  void Free(SequenceId sequence);
  // Tokens it has.
  int64_t length(SequenceId sequence) const;
  // Forgets every token from position `length` on. REQUIRES: 0 <= length <= length(sequence).
  void Truncate(SequenceId sequence, int64_t length);

  // Runs one step. Errors leave every sequence as it was: too many rows, a token outside the
  // vocabulary, a full context (InvalidArgument), no free page (ResourceExhausted). REQUIRES: live
  // sequences, each in one chunk at most.
  absl::Status Step(absl::Span<const Chunk> chunks);
  // Feeds all tokens in steps of at most `chunk` rows (0: the largest); logits of the last row
  // only. After an error the sequence has the tokens of the steps before it.
  absl::Status Prefill(SequenceId sequence, absl::Span<const int32_t> tokens, int64_t chunk = 0);

  // Logits of the last step until the next: row i belongs to the i-th wanted row in chunk order.
  // vocab_size() values; a mutable row has room for that rounded up to 64, as the sampler wants it.
  int64_t logit_rows() const { return logit_rows_; }
  absl::Span<const float> logits(int64_t row) const;
  float* mutable_logits(int64_t row) { return logits_.data() + row * logit_stride_; }

  const Model& model() const { return *model_; }
  int64_t rows_max() const;
  int64_t context() const { return context_; }
  int64_t vocab_size() const { return model_->config().vocab_size; }
  int64_t free_pages() const { return static_cast<int64_t>(free_pages_.size()); }
  int64_t pages() const { return page_count_; }
  int page_tokens() const { return page_tokens_; }
  runtime::Executor& executor() { return *executor_; }
  MemoryUse memory() const;

  // Step, with what each launch took, for profiles.
  struct LaunchTime {
    std::string label, kernel;
    int64_t tiles = 0, ns = 0;
  };
  absl::Status StepTimed(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times);

 private:
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    std::vector<int32_t> pages;
  };
  struct Inputs;

  explicit Engine(std::shared_ptr<const Model> model);
  absl::Status Allocate(const EngineOptions& options);
  absl::Status Check(absl::Span<const Chunk> chunks, int64_t* rows, int64_t* outs) const;
  absl::Status ReservePages(absl::Span<const Chunk> chunks);
  void FillInputs(absl::Span<const Chunk> chunks, const runtime::Plan& plan, int64_t* header);
  void FillRope(int64_t row, int64_t position);
  absl::Status RunStep(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<runtime::Executor> executor_;
  std::vector<std::vector<runtime::BoundLaunch>> bound_;  // per plan
  uint8_t* arena_ = nullptr;
  size_t arena_bytes_ = 0;
  uint8_t* kv_ = nullptr;
  size_t kv_bytes_ = 0;
  int64_t page_count_ = 0;
  int page_tokens_ = 32;
  int64_t context_ = 0;
  std::vector<int32_t> free_pages_;
  std::vector<Sequence> sequences_;
  std::unique_ptr<Inputs> in_;
  std::vector<float> logits_;
  int64_t logit_rows_ = 0, logit_stride_ = 0;
};

}  // namespace cuvil::engine
