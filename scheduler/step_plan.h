// StepPlan: which sequences run in a step, with which tokens; StepResult: what came of it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "kvcache/kv_cache.h"
#include "scheduler/sequence.h"

namespace cuvil::scheduler {

enum class Role : uint8_t { kDecode, kPrefill };

struct Work {
  SequenceId id;
  Role role = Role::kDecode;
  int64_t begin = 0;                 // position of the first token
  absl::Span<const int32_t> tokens;  // to feed; valid until Apply
  int64_t outputs_from = 0;          // rows at this position and later are wanted; end(): none
  bool sample = false;               // the last row's output gives the next token

  int64_t end() const { return begin + static_cast<int64_t>(tokens.size()); }
  bool wants_output() const { return outputs_from < end(); }
};

struct Admission {
  SequenceId id;
  bool guaranteed = false;
  kvcache::KvCache::Match match;
};

struct StepPlan {
  std::vector<Work> works;  // decoding sequences first
  int64_t rows = 0;         // tokens of all works
  int64_t keys = 0;         // positions they look at, summed over rows; at most, if a model's own
                            // layers look less far

  // For Commit; readers of works need not look.
  std::vector<Admission> admit;
  std::vector<SequenceId> guarantee;  // running ones whose worst case is reserved from now on
  std::vector<SequenceId> preempt;
  std::vector<SequenceId> expire;
  int64_t new_pages = 0;  // that the works need, evicting cached ones where none is free
  int64_t now_us = 0;
  int64_t version = -1;  // of the scheduler it was made from

  // Nothing to run. There may still be something to commit and apply: sequences that expire.
  bool idle() const { return works.empty(); }
};

struct WorkResult {
  absl::Status status;  // not OK: this sequence alone ends with it
  int32_t token = -1;   // the sampled one, where the work says sample
  bool finish = false;  // the token ends the sequence (it counts as generated)
};

struct StepResult {
  // Not OK: nothing of the step is trusted. Its sequences start over from their tokens, a bounded
  // number of times, then end with this status.
  absl::Status status;
  std::vector<WorkResult> works;  // as in the plan; ignored when status is not OK
  int64_t elapsed_us = 0;         // of the step alone, for the step-time model
};

}  // namespace cuvil::scheduler
