#include "server/engine/memory_plan.h"

#include <algorithm>

#include "base/checked.h"

namespace cuvil::server {
namespace {

SequencePlan PlanSequence(const runtime::Program& program, const MemoryRequest& request) {
  const runtime::StateDecl& state = program.states[0];
  const int64_t rows = program.plans.back().rows_max;
  SequencePlan s{.page_bytes = state.page_bytes};
  s.tokens = request.sequence_tokens > 0 ? request.sequence_tokens : request.context;
  s.pages = request.trim.PagesMax(s.tokens, state.page_tokens, rows);
  s.pages_untrimmed = kvcache::TrimPolicy().PagesMax(s.tokens, state.page_tokens, rows);
  return s;
}

}  // namespace

MemoryPlan PlanMemory(const runtime::Program& program, const MemoryRequest& request) {
  const runtime::StateDecl& state = program.states[0];
  MemoryPlan plan;
  plan.weights = program.weights_bytes;
  plan.code = request.code_bytes;
  int64_t arena = 64, scratch = 64;
  for (const runtime::Plan& p : program.plans) arena = std::max(arena, p.arena_bytes);
  for (const runtime::KernelDecl& k : program.kernels) scratch = std::max(scratch, k.scratch_bytes);
  const int64_t logit_rows = std::max<int64_t>(request.sequences_max, kLogitRowsMax);
  plan.workspace =
      arena + scratch * request.workers + logit_rows * AlignUp<int64_t>(request.vocab_size, 64) * 4;
  int64_t tokens = request.kv_tokens;
  if (tokens == 0) {
    tokens = kContextsDefault * request.context;
    if (request.limit > 0) {
      const int64_t room =
          std::max<int64_t>(0, request.limit - plan.weights - plan.code - plan.workspace);
      tokens = std::min(tokens, room / state.page_bytes * state.page_tokens);
    }
  }
  plan.pages = CeilDiv<int64_t>(tokens, state.page_tokens);
  plan.kv = plan.pages * state.page_bytes;
  plan.sequence = PlanSequence(program, request);
  return plan;
}

}  // namespace cuvil::server
