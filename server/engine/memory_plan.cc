#include "server/engine/memory_plan.h"

#include <algorithm>
#include <utility>

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
      // One page at least: that it does not fit is said of the whole model, with its sizes.
      const int64_t pages = std::max<int64_t>(1, room / state.page_bytes);
      tokens = std::min(tokens, pages * state.page_tokens);
    }
  }
  plan.pages = CeilDiv<int64_t>(tokens, state.page_tokens);
  plan.kv = plan.pages * state.page_bytes;
  plan.sequence = PlanSequence(program, request);
  return plan;
}

std::vector<int64_t> DivideLimit(int64_t limit, absl::Span<const MemoryNeed> needs) {
  std::vector<int64_t> parts(needs.size(), 0);
  if (limit <= 0) return parts;
  int64_t room = limit;
  std::vector<std::pair<int64_t, size_t>> wanted;  // bytes for default pool and code, and whose
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].program == nullptr) continue;
    MemoryRequest request = needs[i].request;
    request.limit = 0;
    const MemoryPlan plan = PlanMemory(*needs[i].program, request);
    parts[i] = plan.weights + plan.workspace;
    // Code comes out of a default pool's share; beside a pool that was asked for it needs room.
    const int64_t rest = plan.kv + kCodeBytesExpected;
    if (request.kv_tokens == 0) {
      wanted.emplace_back(rest, i);
    } else {
      parts[i] += rest;
    }
    room -= parts[i];
  }
  // The smallest first: what it leaves of its share is there for the larger ones. The largest has
  // all that is left, so that a model alone plans with the whole limit.
  std::sort(wanted.begin(), wanted.end());
  auto left = static_cast<int64_t>(wanted.size());
  for (const auto& [bytes, i] : wanted) {
    const int64_t share = std::max<int64_t>(0, room) / left;
    const int64_t pool = left-- > 1 ? std::min(bytes, share) : share;
    parts[i] += pool;
    room -= pool;
  }
  return parts;
}

}  // namespace cuvil::server
