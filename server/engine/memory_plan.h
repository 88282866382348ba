// What a model will take in memory, from its program alone: no probing of what happens to be free.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kvcache/trim.h"
#include "runtime/program.h"

namespace cuvil::server {

// The pages that one sequence holds at once while it grows to `tokens` positions, at worst: what
// the scheduler sets aside for it. A sequence whose steps begin at page borders may hold one less.
struct SequencePlan {
  int64_t tokens = 0;
  int64_t pages = 0;            // under the model's trim policy
  int64_t pages_untrimmed = 0;  // without one
  int64_t page_bytes = 0;
  int64_t kv() const { return pages * page_bytes; }
  int64_t kv_untrimmed() const { return pages_untrimmed * page_bytes; }
};

struct MemoryPlan {
  int64_t weights = 0;    // packed, in one arena
  int64_t kv = 0;         // every page of the pool
  int64_t workspace = 0;  // activations, worker scratch, logits of a full batch
  int64_t code = 0;       // machine code and its tables
  int64_t pages = 0;
  SequencePlan sequence;  // its share of kv
  int64_t total() const { return weights + kv + workspace + code; }
};

struct MemoryRequest {
  int64_t context = 0;
  int64_t vocab_size = 0;
  int64_t embedding_size = 0;
  int64_t code_bytes = 0;
  int workers = 1;
  int sequences_max = 64;
  int64_t kv_tokens = 0;  // 0: kContextsDefault full contexts, or what `limit` leaves room for
  int64_t limit = 0;      // bytes for everything; 0: none
  kvcache::TrimPolicy trim = {};
  int64_t sequence_tokens = 0;  // of MemoryPlan::sequence; 0: a full context
};

// Full contexts the pool holds when nobody says: enough for a few long conversations at once, and
// committed only as it is used.
inline constexpr int64_t kContextsDefault = 8;

// Rows of prompt logits computed in one go (model_host.cc), so that long prompts with logprobs do
// not need a matrix of the vocabulary for every row of a step.
inline constexpr int64_t kLogitRowsMax = 64;

MemoryPlan PlanMemory(const runtime::Program& program, const MemoryRequest& request);

// What a model's machine code is taken for before it is compiled: well above any seen.
inline constexpr int64_t kCodeBytesExpected = int64_t{4} << 20;

// One of the models that share a limit.
struct MemoryNeed {
  const runtime::Program* program = nullptr;  // null: unknown, it gets nothing
  MemoryRequest request;                      // its code and limit do not count
};

// Cuts a limit for models that are there together: what each may plan with, in their order, all 0
// without a limit. Weights, workspace and the pools that were asked for come first; default pools
// share the rest evenly, and what one does not want goes to the others. The same models get the
// same parts whether or not their code is known, so that a plan and a start agree.
std::vector<int64_t> DivideLimit(int64_t limit, absl::Span<const MemoryNeed> needs);

}  // namespace cuvil::server
