// What the hot loops of the templates must look like as machine code, at the shapes of the default
// model (k = 576, 9/3 heads of 64): no vector is spilled, and an integer dot is one instruction.
#include <algorithm>

#include "compiler/emit/inspect/inspect.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/template_attention.h"
#include "compiler/kernel/template_linear.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_case.h"

namespace cuvil::conformance {
namespace {

emit::ObjectReport Inspected(const kernel::Kernel& kernel, const emit::Target& target) {
  const auto emitted = emit::EmitObject(kernel, target);
  EXPECT_TRUE(emitted.ok()) << emitted.status();
  if (!emitted.ok()) return {};
  auto report = emit::Inspect(emitted->object, kernel.name);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : emit::ObjectReport{};
}

void ExpectNoVectorSpills(const emit::ObjectReport& report) {
  ASSERT_FALSE(report.loops.empty());
  for (const emit::LoopReport& loop : report.loops) {
    EXPECT_EQ(loop.stack.vector_loads, 0) << emit::Summary(report);
    EXPECT_EQ(loop.stack.vector_stores, 0) << emit::Summary(report);
    EXPECT_EQ(loop.calls, 0) << emit::Summary(report);
  }
}

int Count(const emit::LoopReport& loop, std::string_view prefix) {
  int n = 0;
  for (const auto& [name, count] : loop.mnemonics) n += name.starts_with(prefix) ? count : 0;
  return n;
}

class HotLoops : public ::testing::Test {
 protected:
  const emit::Target target_ = *emit::FindTarget("cpu:avx512vnni");
  const kernel::Machine machine_ = MachineOf(target_);
};

TEST_F(HotLoops, IntegerLinears) {
  for (const WeightLayout layout :
       {WeightLayout::kQ4_0, WeightLayout::kQ4_1, WeightLayout::kQ8_0}) {
    kernel::LinearParams p{.name = "linear", .k = 576, .n_stride = 576, .strips = 2};
    p.weights = layout;
    p.act = ActFormat::kA8B32;
    p.epilogue = kernel::Epilogue::kResidual;
    p.prefetch = true;
    const emit::ObjectReport report = Inspected(kernel::BuildLinear(p, machine_), target_);
    ExpectNoVectorSpills(report);
    // One loop a row tile of 8, 4, 2 and 1 rows: eight dots a row and block, each one instruction.
    std::vector<int> dots;
    for (const emit::LoopReport& loop : report.loops) {
      if (const int n = Count(loop, "vpdpbusd"); n > 0) dots.push_back(n);
    }
    std::sort(dots.begin(), dots.end());
    EXPECT_EQ(dots, (std::vector<int>{8, 16, 32, 64})) << emit::Summary(report);
  }
}

TEST_F(HotLoops, Attention) {
  for (const kernel::Scalar kv : {kernel::Scalar::kF16, kernel::Scalar::kF32}) {
    kernel::AttentionParams p{"attention", 9, 3, 64, kv};
    p.row_block = kernel::AttentionRowBlock(p, machine_);
    p.out_act = ActFormat::kA8B32;
    ExpectNoVectorSpills(Inspected(kernel::BuildAttention(p, machine_), target_));
  }
}

}  // namespace
}  // namespace cuvil::conformance
