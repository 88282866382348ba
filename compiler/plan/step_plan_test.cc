#include "compiler/plan/step_plan.h"

#include <set>

#include "compiler/kernel/text.h"
#include "compiler/kernel/verify.h"
#include "compiler/passes/test_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/program_json.h"
#include "runtime/validate.h"

namespace cuvil::plan {
namespace {

using passes::MakeTestGraph;
using passes::TestModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr kernel::Machine kAvx2{.lanes = 8, .registers = 16}, kAvx512{.lanes = 16, .registers = 32};

absl::StatusOr<StepProgram> Plan(const TestModel& model, StepOptions options = {}) {
  const ir::Graph graph = MakeTestGraph(model);
  ASSIGN_OR_RETURN(const auto groups, passes::Partition(graph));
  return PlanStep(graph, groups, options);
}

StepProgram MustPlan(const TestModel& model, StepOptions options = {}) {
  auto planned = Plan(model, options);
  EXPECT_TRUE(planned.ok()) << planned.status();
  return planned.ok() ? *std::move(planned) : StepProgram{};
}

std::vector<std::string> Labels(const runtime::Plan& plan) {
  std::vector<std::string> labels;
  for (const runtime::Launch& l : plan.launches) labels.push_back(l.label);
  return labels;
}

std::vector<TestModel> Variants() {
  return {{},
          {.weights = DType::kF32},
          {.weights = DType::kQ8_0, .bias = true},
          {.heads = 3, .kv_heads = 1, .head_dim = 64, .weights = DType::kQ4_0, .rope_dim = 64},
          {.weights = DType::kF16,
           .post_norms = true,
           .qk_norm = true,
           .half_rope = true,
           .window = 16,
           .activation = ir::OpKind::kGeluTanh},
          {.layers = 1, .weights = DType::kBf16, .rope_dim = 0}};
}

TEST(StepPlan, ADecodeLayerIsFiveLaunchesAndAMerge) {
  const StepProgram s = MustPlan({.layers = 1});
  ASSERT_EQ(s.program.plans.size(), 2u);
  EXPECT_EQ(s.program.plans[0].rows_max, 8);
  EXPECT_EQ(s.program.plans[1].rows_max, 512);
  EXPECT_THAT(Labels(s.program.plans[0]),
              ElementsAre("embed", "blk.0 qkv", "blk.0 attention", "blk.0 merge",
                          "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
                          "blk.0.ffn_down.weight", "logits", "hidden states"));
  // Many rows: records are made once, before the launches whose tiles read them.
  EXPECT_THAT(
      Labels(s.program.plans[1]),
      ElementsAre("embed", "blk.0 qkv rows", "blk.0 qkv", "blk.0 attention", "blk.0 merge",
                  "blk.0.attn_output.weight", "blk.0.ffn_gate.weight rows", "blk.0.ffn_gate.weight",
                  "blk.0.ffn_down.weight", "logits", "hidden states"));
}

TEST(StepPlan, EveryVariantIsAValidProgram) {
  for (const TestModel& model : Variants()) {
    for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
      for (const kernel::Machine& machine : {kAvx2, kAvx512}) {
        StepProgram s = MustPlan(model, {.numerics = numerics, .machine = machine});
        s.program.key = "key";
        s.program.target = "cpu:test";
        EXPECT_EQ(runtime::Validate(s.program), absl::OkStatus());
        ASSERT_EQ(s.kernels.size(), s.program.kernels.size());
        std::set<std::string> names;
        for (size_t i = 0; i < s.kernels.size(); ++i) {
          EXPECT_EQ(kernel::Verify(s.kernels[i]), absl::OkStatus()) << s.kernels[i].name;
          EXPECT_EQ(s.kernels[i].name, s.program.kernels[i].symbol);
          EXPECT_TRUE(names.insert(s.kernels[i].name).second) << s.kernels[i].name;
        }
      }
    }
  }
}

TEST(StepPlan, SlotsAliveTogetherShareNoByte) {
  for (const TestModel& model : Variants()) {
    for (const runtime::Plan& plan : MustPlan(model).program.plans) {
      for (size_t i = 0; i < plan.slots.size(); ++i) {
        const runtime::Slot& a = plan.slots[i];
        EXPECT_LE(a.first, a.last);
        EXPECT_LE(a.offset + a.bytes, plan.arena_bytes);
        for (size_t j = 0; j < i; ++j) {
          const runtime::Slot& b = plan.slots[j];
          const bool together = a.first <= b.last && b.first <= a.last;
          const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
          EXPECT_TRUE(!together || apart) << plan.name << ": " << a.name << " and " << b.name;
        }
      }
    }
  }
}

TEST(StepPlan, SameInputsSameBytes) {
  for (const TestModel& model : Variants()) {
    const StepProgram a = MustPlan(model), b = MustPlan(model);
    EXPECT_EQ(WriteJson(runtime::ToJson(a.program)), WriteJson(runtime::ToJson(b.program)));
    ASSERT_EQ(a.kernels.size(), b.kernels.size());
    for (size_t i = 0; i < a.kernels.size(); ++i) {
      EXPECT_EQ(kernel::Print(a.kernels[i]), kernel::Print(b.kernels[i]));
    }
  }
}

TEST(StepPlan, LayersShareKernels) {
  const StepProgram one = MustPlan({.layers = 1}), four = MustPlan({.layers = 4});
  EXPECT_EQ(four.kernels.size(), one.kernels.size());
}

// Two layers that differ in a number baked into code have kernels of their own.
TEST(StepPlan, LayersThatDifferDoNotShareKernels) {
  EXPECT_GT(MustPlan({.odd_scale = 0.5}).kernels.size(), MustPlan({}).kernels.size());
}

TEST(StepPlan, NumericsChooseFormats) {
  const auto has = [](const StepProgram& s, std::string_view part) {
    for (const kernel::Kernel& k : s.kernels) {
      if (k.name.find(part) != std::string::npos) return true;
    }
    return false;
  };
  const StepProgram fast = MustPlan({}, {.numerics = Numerics::kFast});
  const StepProgram exact = MustPlan({}, {.numerics = Numerics::kExact});
  const StepProgram deterministic = MustPlan({}, {.numerics = Numerics::kDeterministic});
  EXPECT_TRUE(has(fast, "a8b32"));
  EXPECT_FALSE(has(exact, "a8b32"));
  EXPECT_EQ(exact.program.states[0].page_bytes, 2 * fast.program.states[0].page_bytes);
  EXPECT_EQ(WriteJson(runtime::ToJson(deterministic.program)),
            WriteJson(runtime::ToJson(fast.program)));
  // Float weights keep float activations.
  EXPECT_FALSE(has(MustPlan({.weights = DType::kF16}), "a8b32"));
}

TEST(StepPlan, ATiedTableIsPackedOnceAndPadded) {
  const StepProgram s = MustPlan({});
  int tables = 0;
  for (const runtime::WeightDecl& w : s.program.weights) {
    if (w.name != "token_embd.weight") continue;
    ++tables;
    int64_t rows = 0;
    for (const runtime::RowRun& run : w.runs) rows += run.rows;
    EXPECT_EQ(rows, 128);  // 100 up to whole tiles of 64
  }
  EXPECT_EQ(tables, 1);
}

TEST(StepPlan, RefusesSizesWithASentence) {
  const auto message = [](const TestModel& model) {
    const auto planned = Plan(model);
    EXPECT_EQ(planned.status().code(), absl::StatusCode::kUnimplemented);
    return std::string(planned.status().message());
  };
  EXPECT_THAT(message({.head_dim = 48, .weights = DType::kF32, .rope_dim = 48}),
              AllOf(HasSubstr("head_dim is 48"), HasSubstr("multiple of 32")));
  EXPECT_THAT(message({.rope_dim = 24}), HasSubstr("rope dimension is 24"));
  EXPECT_THAT(message({.half_rope = true, .rope_dim = 16}), HasSubstr("rope dimension is 16"));
  EXPECT_THAT(message({.width = 40, .weights = DType::kF32}),
              AllOf(HasSubstr("the width of"), HasSubstr("is 40")));
  EXPECT_THAT(message({.hidden = 80, .weights = DType::kF32}), HasSubstr("is 80"));
  EXPECT_THAT(message({.softcap = 30}), HasSubstr("soft cap"));
  EXPECT_THAT(message({.odd_heads = 2}), HasSubstr("heads"));
}

TEST(StepPlan, NumericsHaveNames) {
  for (const Numerics n : {Numerics::kExact, Numerics::kFast, Numerics::kDeterministic}) {
    EXPECT_EQ(*ParseNumerics(NumericsName(n)), n);
  }
  EXPECT_THAT(std::string(ParseNumerics("best").status().message()), HasSubstr("'best'"));
}

TEST(StepPlan, RefusesASecondResidualStream) {
  const ir::Graph graph = MakeTestGraph({});
  auto groups = *passes::Partition(graph);
  for (passes::Group& g : groups) {
    if (g.kind == passes::GroupKind::kLinear) g.residual = g.input;
  }
  EXPECT_THAT(std::string(PlanStep(graph, groups, {}).status().message()),
              HasSubstr("adds to something else than the residual stream"));
  groups = *passes::Partition(graph);
  groups.erase(groups.begin() + 1);
  EXPECT_THAT(std::string(PlanStep(graph, groups, {}).status().message()),
              HasSubstr("reads a value that no group before it makes"));
}

}  // namespace
}  // namespace cuvil::plan
