#include "compiler/emit/inspect/inspect.h"

#include <random>

#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/kir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::emit {
namespace {

using kernel::Builder;
using kernel::F32x;
using kernel::Value;
using ::testing::HasSubstr;

// sum[i] += a * b[i], for `accumulators` vectors at once: all of them live through the loop.
kernel::Kernel Accumulate(int accumulators, int lanes) {
  Builder b("accumulate");
  const kernel::Buf x = b.Buffer("x"), y = b.Buffer("y", true);
  const Value n = b.ScalarArg("n"), zero = b.Int(0);
  std::vector<Value> init(accumulators, b.Float(0, F32x(lanes)));
  const std::vector<Value> sums = b.For(zero, n, 4, init, [&](Value iv, auto carried) {
    const Value a = b.LoadSplat(F32x(lanes), x, iv);
    std::vector<Value> next;
    for (int i = 0; i < accumulators; ++i) {
      next.push_back(b.Fma(a, b.Load(F32x(lanes), x, iv, i * lanes * 4), carried[i]));
    }
    return next;
  });
  for (int i = 0; i < accumulators; ++i) b.Store(sums[i], y, zero, i * lanes * 4);
  return b.Finish();
}

std::vector<uint8_t> Emit(const kernel::Kernel& k, std::string_view target) {
  const absl::StatusOr<Target> t = FindTarget(target);
  EXPECT_EQ(t.status(), absl::OkStatus());
  absl::StatusOr<Emitted> e = EmitObject(k, *t);
  EXPECT_EQ(e.status(), absl::OkStatus());
  return e.ok() ? std::move(e->object) : std::vector<uint8_t>{};
}

ObjectReport MustInspect(const std::vector<uint8_t>& object, std::string_view symbol) {
  absl::StatusOr<ObjectReport> r = Inspect(object, symbol);
  EXPECT_EQ(r.status(), absl::OkStatus());
  return r.ok() ? *std::move(r) : ObjectReport{};
}

TEST(Inspect, CountsTheHotLoop) {
  const ObjectReport r = MustInspect(Emit(Accumulate(6, 8), "cpu:avx2"), "accumulate");
  ASSERT_EQ(r.loops.size(), 1u) << r.listing;
  const LoopReport& loop = r.loops[0];
  EXPECT_EQ(loop.stack, StackTraffic{}) << r.listing;
  int fmas = 0;
  for (const auto& [name, count] : loop.mnemonics) fmas += name.starts_with("vfmadd") ? count : 0;
  EXPECT_EQ(fmas, 6) << r.listing;
  EXPECT_EQ(loop.calls, 0);
  EXPECT_LT(loop.begin, loop.end);
  EXPECT_LE(loop.end, r.code_bytes);
  EXPECT_LT(loop.instructions, r.instructions);
  EXPECT_THAT(Summary(r), HasSubstr("accumulate: "));
  EXPECT_THAT(r.listing, HasSubstr("ret"));
}

// Twenty accumulators do not fit sixteen registers and do fit thirty-two.
TEST(Inspect, SeesVectorSpills) {
  const ObjectReport narrow = MustInspect(Emit(Accumulate(20, 8), "cpu:avx2"), "accumulate");
  ASSERT_EQ(narrow.loops.size(), 1u);
  EXPECT_GT(narrow.loops[0].stack.vector_loads, 0) << narrow.listing;
  EXPECT_GT(narrow.loops[0].stack.vector_stores, 0) << narrow.listing;
  const ObjectReport wide = MustInspect(Emit(Accumulate(20, 16), "cpu:avx512"), "accumulate");
  ASSERT_EQ(wide.loops.size(), 1u);
  EXPECT_EQ(wide.loops[0].stack, StackTraffic{}) << wide.listing;
}

TEST(Inspect, ReportsInnermostLoopsOnly) {
  Builder b("nest");
  const kernel::Buf y = b.Buffer("y", true);
  const Value n = b.ScalarArg("n"), zero = b.Int(0);
  b.For(zero, n, 1, [&](Value i) {
    b.For(zero, i, 8, [&](Value j) { b.Store(i, y, j); });
    b.For(zero, n, 8, [&](Value j) { b.Store(j, y, j, 4096); });
  });
  const ObjectReport r = MustInspect(Emit(b.Finish(), "cpu:avx2"), "nest");
  ASSERT_EQ(r.loops.size(), 2u) << r.listing;
  EXPECT_LE(r.loops[0].end, r.loops[1].begin);
}

TEST(Inspect, StraightCodeHasNoLoops) {
  Builder b("straight");
  const kernel::Buf y = b.Buffer("y", true);
  b.Store(b.Tile(), y, b.Int(0));
  const ObjectReport r = MustInspect(Emit(b.Finish(), "cpu:avx2"), "straight");
  EXPECT_TRUE(r.loops.empty());
  EXPECT_EQ(r.stack.total(), 0);
  EXPECT_EQ(r.code_bytes > 0, true);
}

TEST(Inspect, RefusesWhatIsNoObject) {
  EXPECT_FALSE(Inspect({}, "f").ok());
  const std::vector<uint8_t> junk(1000, 'x');
  EXPECT_FALSE(Inspect(junk, "f").ok());
  const std::vector<uint8_t> object = Emit(Accumulate(1, 8), "cpu:avx2");
  EXPECT_THAT(std::string(Inspect(object, "missing").status().message()),
              HasSubstr("no function 'missing'"));
}

// Damaged objects give an answer or an error, never a crash.
TEST(Inspect, SurvivesDamage) {
  const std::vector<uint8_t> object = Emit(Accumulate(2, 8), "cpu:avx2");
  for (size_t size = 0; size < object.size(); size += 7) {
    (void)Inspect(absl::MakeConstSpan(object).subspan(0, size), "accumulate");
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::vector<uint8_t> bad = object;
    for (int j = 0; j < 4; ++j) bad[random() % bad.size()] ^= 1u << random() % 8;
    (void)Inspect(bad, "accumulate");
  }
}

}  // namespace
}  // namespace cuvil::emit
