#include "compiler/kernel/text.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "compiler/kernel/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::kernel {
namespace {

using ::testing::HasSubstr;

std::string Message(std::string_view text) {
  const absl::StatusOr<Kernel> k = Parse(text);
  EXPECT_FALSE(k.ok()) << text;
  return std::string(k.status().message());
}

bool SameOp(const Op& a, const Op& b) {
  return a.code == b.code && a.type == b.type && a.in == b.in && a.out == b.out && a.imm == b.imm &&
         std::bit_cast<uint64_t>(a.fimm) == std::bit_cast<uint64_t>(b.fimm) &&
         a.buf.index == b.buf.index && a.table == b.table && a.block == b.block;
}

// Every field of a built kernel comes back.
void ExpectSame(const Kernel& a, const Kernel& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.scalars, b.scalars);
  EXPECT_EQ(a.scratch_bytes, b.scratch_bytes);
  EXPECT_TRUE(a.types == b.types);
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[i].name, b.buffers[i].name);
    EXPECT_EQ(a.buffers[i].written, b.buffers[i].written);
  }
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i)
    EXPECT_TRUE(SameOp(a.ops[i], b.ops[i])) << PrintOp(a, i);
  ASSERT_EQ(a.blocks.size(), b.blocks.size());
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    EXPECT_TRUE(a.blocks[i].params == b.blocks[i].params);
    EXPECT_EQ(a.blocks[i].ops, b.blocks[i].ops);
    EXPECT_TRUE(a.blocks[i].yields == b.blocks[i].yields);
  }
}

Kernel EveryForm() {
  Builder b("every form \"quoted\"");
  const Buf x = b.Buffer("x"), y = b.Buffer("out y", true);
  const Value n = b.ScalarArg("n");
  const int64_t at = b.Scratch(100);
  const Value zero = b.Int(0), tile = b.Tile();
  for (const double v : {0.1, -0.0, 1e300, 5e-324, std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN(), std::bit_cast<double>(~0ull)}) {
    b.Float(v, {Scalar::kF64, 2});
  }
  b.Int(std::numeric_limits<int64_t>::min());
  const Value a = b.LoadSplat(F32x(8), x, tile, -4);
  const Value iota = b.Iota(S32x(8));
  const Value g = b.Gather(F32x(8), x, tile, iota, 64);
  b.Once([&] { b.Store(b.Fma(a, g, g), b.scratch(), zero, at); });
  b.Prefetch(x, n, 1 << 20);
  const Value less = b.Cmp(OpCode::kCmpLt, a, g);
  const Value s = b.Select(less, a, b.Sqrt(g));
  const Value bits = b.Bitcast(s, S32x(8));
  const Value dot = b.Dot4(bits, bits, iota, 127);
  b.Shr(b.Shl(dot, 4), 28);
  const Value wide = b.Shuffle(a, g, {0, 8, 1, 9, 15, 15, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3});
  b.Insert(wide, b.Extract(g, 7), 15);
  b.Cvt(a, Scalar::kBf16);
  const std::vector<Value> r = b.For(zero, n, 4, {a, dot}, [&](Value iv, auto c) {
    b.For(zero, iv, 1, [&](Value j) { b.If(b.Cmp(OpCode::kCmpNe, j, iv), [] {}); });
    return std::vector<Value>{b.Neg(c[0]), b.Abs(c[1])};
  });
  b.Store(b.Reduce(OpCode::kReduceAdd, r[0]), y, tile, 8);
  return b.Finish();
}

TEST(Text, ParseGivesBackWhatWasPrinted) {
  const Kernel k = EveryForm();
  ASSERT_EQ(Verify(k), absl::OkStatus());
  const std::string text = Print(k);
  const absl::StatusOr<Kernel> again = Parse(text);
  ASSERT_EQ(again.status(), absl::OkStatus()) << text;
  ExpectSame(k, *again);
  EXPECT_EQ(Print(*again), text);
}

TEST(Text, HolesInValueNumbersSurvive) {
  const absl::StatusOr<Kernel> k = Parse("kernel k { %7 : s64 = tile %3 : s64 = add %7, %7 }");
  ASSERT_EQ(k.status(), absl::OkStatus());
  const std::string text = Print(*k);
  EXPECT_EQ(text, "kernel k {\n  %7 : s64 = tile\n  %3 : s64 = add %7, %7\n}\n");
  EXPECT_EQ(Print(*Parse(text)), text);
}

TEST(Text, ErrorsNameTheLine) {
  EXPECT_THAT(Message("kernel k {\n  %0 : s64 = tile\n  %1 : s64 = what %0\n}"),
              HasSubstr("line 3: unknown op 'what'"));
  EXPECT_THAT(Message("kernel k {\n %0 : q4 = tile }"), HasSubstr("line 2: unknown type"));
  EXPECT_THAT(Message("kernel k {"), HasSubstr("expected an op"));
  EXPECT_THAT(Message("kernel k { %99999999999 : s64 = tile }"), HasSubstr("value number"));
  EXPECT_THAT(Message("kernel k { %1048576 : s64 = tile }"), HasSubstr("value number"));
  EXPECT_THAT(Message("kernel k { } x"), HasSubstr("after the kernel"));
  EXPECT_THAT(Message("kernel \"k"), HasSubstr("closing quote"));
  EXPECT_THAT(Message("kernel k { %0 : s64 = scalar_arg n }"), HasSubstr("unknown scalar"));
  EXPECT_THAT(Message("kernel k { %0 : s64 = const 0 %1 : f32 = load x[%0 + 0] }"),
              HasSubstr("unknown buffer"));
  EXPECT_THAT(Message("kernel k { store scratch[%0 + 0], %1 }"), HasSubstr("before it is defined"));
  EXPECT_THAT(Message("kernel k { %0 : s64 = add %0, %0 }"), HasSubstr("not defined there"));
  EXPECT_THAT(Message("kernel k { %0 : s64 = const 1.5 }"), HasSubstr("integer"));
  EXPECT_THAT(Message("kernel k { for %0 = %1 to %1 step 1 { } }"), HasSubstr("uses no value"));
}

TEST(Text, NestingIsBounded) {
  std::string text = "kernel k {";
  for (int i = 0; i < 100000; ++i) text += " once {";
  EXPECT_THAT(Message(text), HasSubstr("deep"));
}

// tests/golden/kernel/*.kir are in printed form, comments aside; CUVIL_UPDATE_GOLDEN=1 rewrites
// them.
TEST(Text, GoldensAreInPrintedForm) {
  const char* source = std::getenv("CUVIL_SOURCE_DIR");
  const std::filesystem::path folder =
      std::filesystem::path(source == nullptr ? "." : source) / "tests/golden/kernel";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".kir") continue;
    ++count;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const absl::StatusOr<Kernel> k = Parse(text);
    ASSERT_EQ(k.status(), absl::OkStatus()) << entry.path();
    std::string head;  // leading comment lines stay
    for (size_t at = 0; text.compare(at, 2, "//") == 0;) {
      const size_t end = text.find('\n', at) + 1;
      head += text.substr(at, end - at);
      at = end;
    }
    if (std::getenv("CUVIL_UPDATE_GOLDEN") != nullptr)
      std::ofstream(entry.path()) << head << Print(*k);
    else
      EXPECT_EQ(head + Print(*k), text) << entry.path();
  }
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace cuvil::kernel
