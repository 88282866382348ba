#include "server/engine/memory_plan.h"

#include "gtest/gtest.h"

namespace cuvil::server {
namespace {

// Pages of 32 tokens and 1000 bytes, steps of at most 512 rows.
runtime::Program SmallProgram() {
  runtime::Program program;
  program.states.push_back({.name = "kv", .page_bytes = 1000, .page_tokens = 32});
  program.plans.resize(2);
  program.plans[0].rows_max = 16;
  program.plans[1].rows_max = 512;
  program.weights_bytes = 5000;
  return program;
}

MemoryRequest Request() { return {.context = 4096, .vocab_size = 272, .sequences_max = 8}; }

TEST(MemoryPlan, ThePoolIsWhatWasAskedForOrFullContexts) {
  const runtime::Program program = SmallProgram();
  MemoryRequest request = Request();
  EXPECT_EQ(PlanMemory(program, request).pages, kContextsDefault * 4096 / 32);
  request.kv_tokens = 1000;
  const MemoryPlan plan = PlanMemory(program, request);
  EXPECT_EQ(plan.pages, 32);  // rounded up
  EXPECT_EQ(plan.kv, 32 * 1000);
  EXPECT_EQ(plan.total(), plan.kv + 5000 + plan.workspace + plan.code);
}

TEST(MemoryPlan, ALimitBoundsTheDefaultPoolOnly) {
  const runtime::Program program = SmallProgram();
  MemoryRequest request = Request();
  request.limit = PlanMemory(program, request).total() - 500'500;
  const MemoryPlan plan = PlanMemory(program, request);
  EXPECT_EQ(plan.pages, kContextsDefault * 4096 / 32 - 501);
  EXPECT_LE(plan.total(), request.limit);
  request.kv_tokens = 2 * kContextsDefault * 4096;
  EXPECT_GT(PlanMemory(program, request).total(), request.limit);
}

// Each default pool was planned with the whole limit: the second model found nothing left.
TEST(MemoryPlan, DefaultPoolsShareOneLimit) {
  const runtime::Program program = SmallProgram();
  MemoryRequest small = Request(), large = Request(), asked = Request();
  small.context = 64;
  asked.kv_tokens = 320;
  const auto plan = [&](MemoryRequest request, int64_t limit) {
    request.limit = limit;
    request.code_bytes = kCodeBytesExpected / 2;
    return PlanMemory(program, request);
  };
  const std::vector<MemoryNeed> needs = {
      {&program, large}, {&program, small}, {}, {&program, asked}, {&program, large}};
  const MemoryPlan whole = plan(large, 0);
  // Room for one of the two large pools.
  const int64_t fixed = 5000 + whole.workspace;
  const int64_t limit =
      4 * (fixed + kCodeBytesExpected) + plan(asked, 0).kv + plan(small, 0).kv + whole.kv;
  const std::vector<int64_t> parts = DivideLimit(limit, needs);
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_LE(parts[0] + parts[1] + parts[3] + parts[4], limit);
  EXPECT_EQ(parts[2], 0);
  EXPECT_EQ(parts[0], parts[4]);
  EXPECT_EQ(parts[0], fixed + kCodeBytesExpected + whole.kv / 2);
  EXPECT_EQ(plan(small, parts[1]).pages, plan(small, 0).pages);  // wants less than its share
  EXPECT_LE(plan(asked, parts[3]).total(), parts[3]);
  // One alone has all of it; without a limit there is nothing to divide.
  EXPECT_EQ(DivideLimit(limit, {needs.data(), 1})[0], limit);
  EXPECT_EQ(DivideLimit(0, needs), std::vector<int64_t>(5, 0));
}

TEST(MemoryPlan, ASequenceHoldsItsWholeLengthWithoutTrimming) {
  const runtime::Program program = SmallProgram();
  MemoryRequest request = Request();
  SequencePlan s = PlanMemory(program, request).sequence;
  EXPECT_EQ(s.tokens, 4096);  // nothing said: a full context
  EXPECT_EQ(s.pages, 128);
  EXPECT_EQ(s.kv(), 128'000);
  EXPECT_EQ(s.kv_untrimmed(), s.kv());
  request.sequence_tokens = 33;
  s = PlanMemory(program, request).sequence;
  EXPECT_EQ(s.tokens, 33);
  EXPECT_EQ(s.pages, 2);
}

TEST(MemoryPlan, ATrimmedSequenceHoldsWhatTheSchedulerSetsAside) {
  const runtime::Program program = SmallProgram();
  MemoryRequest request = Request();
  request.trim = {.max_kv_len = 1024, .sinks = 4};
  SequencePlan s = PlanMemory(program, request).sequence;
  // A page of sinks; 1019 + 512 positions that a step's rows see, in 48 pages and one for where
  // they begin.
  EXPECT_EQ(s.pages, 1 + 48 + 1);
  EXPECT_EQ(s.pages_untrimmed, 128);
  EXPECT_EQ(s.kv(), 50'000);
  // The length stops to matter; the pool does not shrink, since a request may ask for no trimming.
  request.context = 1 << 20;
  request.kv_tokens = 4096;
  EXPECT_EQ(PlanMemory(program, request).sequence.pages, s.pages);
  EXPECT_EQ(PlanMemory(program, request).pages, 128);
  // A short one never reaches the bound.
  request.sequence_tokens = 100;
  s = PlanMemory(program, request).sequence;
  EXPECT_EQ(s.pages, 4);
  EXPECT_EQ(s.pages_untrimmed, 4);
}

}  // namespace
}  // namespace cuvil::server
