// Engine: up to sequences_max sequences of one model, each with its own pages, over a StepRunner.
// For commands that drive a model directly; a server's pages belong to its scheduler.
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
#include "engine/step_runner.h"
#include "kvcache/trim.h"

namespace cuvil::engine {

struct SequenceId {
  int32_t value = -1;
  bool operator==(const SequenceId&) const = default;
};

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
  // Of every sequence. Pages that no later token sees go back to the pool.
  kvcache::TrimPolicy trim = {};
};

struct MemoryUse {
  int64_t weights = 0, kv = 0, workspace = 0, code = 0;  // bytes; kv: pages in use
};

class Engine {
 public:
  // InvalidArgument for a pool that is too large to count or a trim policy that the model cannot
  // bear, ResourceExhausted when the system refuses memory or threads.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                        const EngineOptions& options = {});
  // An empty sequence; ResourceExhausted when sequences_max are live.
  absl::StatusOr<SequenceId> NewSequence();
  // Gives its pages back. REQUIRES here and below: the sequence is live.
  void Free(SequenceId sequence);
  // Tokens it has.
  int64_t length(SequenceId sequence) const;
  // Forgets every token from position `length` on. REQUIRES: 0 <= length <= length(sequence); a
  // trimmed sequence has lost what an earlier position saw, so for it: 0 or length(sequence).
  void Truncate(SequenceId sequence, int64_t length);

  // Runs one step. Errors leave every sequence as it was: too many rows, a token outside the
  // vocabulary, a full context (InvalidArgument), no free page (ResourceExhausted). REQUIRES: live
  // sequences, each in one chunk at most.
  absl::Status Step(absl::Span<const Chunk> chunks);
  // Feeds all tokens in steps of at most `chunk` rows (0: the largest); logits of the last row
  // only. After an error the sequence has the tokens of the steps before it.
  absl::Status Prefill(SequenceId sequence, absl::Span<const int32_t> tokens, int64_t chunk = 0);

  // Logits of the last step: see StepRunner.
  int64_t logit_rows() const { return runner_->logit_rows(); }
  absl::Span<const float> logits(int64_t row) const { return runner_->logits(row); }
  float* mutable_logits(int64_t row) { return runner_->mutable_logits(row); }

  const Model& model() const { return runner_->model(); }
  int64_t rows_max() const { return runner_->rows_max(); }
  int64_t context() const { return runner_->context(); }
  int64_t vocab_size() const { return runner_->vocab_size(); }
  int64_t free_pages() const { return static_cast<int64_t>(free_pages_.size()); }
  int64_t pages() const { return runner_->pages(); }
  // Most pages that were in use at once so far.
  int64_t pages_peak() const { return pages_peak_; }
  int64_t page_bytes() const { return runner_->page_bytes(); }
  int page_tokens() const { return runner_->page_tokens(); }
  runtime::Executor& executor() { return runner_->executor(); }
  MemoryUse memory() const;

  // Step, with what each launch took, for profiles.
  absl::Status StepTimed(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times);

 private:
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    std::vector<int32_t> pages;  // -1: trimmed
  };

  Engine() = default;
  void Check(absl::Span<const Chunk> chunks) const;
  absl::Status ReservePages(absl::Span<const Chunk> chunks);
  absl::Status RunStep(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times);
  void Trim(Sequence& s);

  std::unique_ptr<StepRunner> runner_;
  std::vector<int32_t> free_pages_;
  std::vector<Sequence> sequences_;
  std::vector<StepRows> rows_;  // of the step, reused
  kvcache::TrimPolicy trim_;
  int64_t pages_peak_ = 0;
};

// Whether the model can run under the policy: InvalidArgument with the reason when not.
absl::Status CheckTrim(const kvcache::TrimPolicy& policy, const Model& model);
// The same of a model that is not loaded.
absl::Status CheckTrim(const kvcache::TrimPolicy& policy, const gguf::ModelConfig& config,
                       int64_t page_tokens);

}  // namespace cuvil::engine
