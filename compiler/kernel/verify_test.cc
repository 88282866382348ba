#include "compiler/kernel/verify.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::kernel {
namespace {

using ::testing::HasSubstr;

// A small kernel with a loop, an if and stores: the victim of every edit below.
struct Sample {
  Kernel kernel;
  int add = -1, load = -1, store = -1, loop = -1, branch = -1;
};

Sample Build() {
  Builder b("sample");
  const Buf x = b.Buffer("x"), y = b.Buffer("y", true);
  const Value n = b.ScalarArg("n");
  const Value zero = b.Int(0);
  const Value init = b.Float(0, F32x(8));
  const std::vector<Value> sum = b.For(zero, n, 32, {init}, [&](Value iv, auto carried) {
    return std::vector<Value>{b.Add(carried[0], b.Load(F32x(8), x, iv))};
  });
  b.If(b.Cmp(OpCode::kCmpLt, zero, n), [&] { b.Store(sum[0], y, zero); });
  Sample s{.kernel = b.Finish()};
  for (size_t i = 0; i < s.kernel.ops.size(); ++i) {
    const int index = static_cast<int>(i);
    switch (s.kernel.ops[i].code) {
      case OpCode::kAdd:
        s.add = index;
        break;
      case OpCode::kLoad:
        s.load = index;
        break;
      case OpCode::kStore:
        s.store = index;
        break;
      case OpCode::kFor:
        s.loop = index;
        break;
      case OpCode::kIf:
        s.branch = index;
        break;
      default:
        break;
    }
  }
  return s;
}

// Applies an edit and gives the message of the refusal; fails the test when accepted.
std::string Refusal(const std::function<void(Sample&)>& edit) {
  Sample s = Build();
  edit(s);
  const absl::Status status = Verify(s.kernel);
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

TEST(Verify, AcceptsASoundKernel) { EXPECT_EQ(Verify(Build().kernel), absl::OkStatus()); }

TEST(Verify, NamesTheKernelAndTheOp) {
  const std::string why = Refusal([](Sample& s) { s.kernel.ops[s.add].in.pop_back(); });
  EXPECT_THAT(why, HasSubstr("kernel 'sample'"));
  EXPECT_THAT(why, HasSubstr("(add): takes two"));
}

TEST(Verify, OperandsAndResults) {
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].in[0] = Value{}; }),
              HasSubstr("no value"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].in[0] = s.kernel.ops[s.add].out[0]; }),
              HasSubstr("not defined there"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].type.lanes = 4; }),
              HasSubstr("another type"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].out.clear(); }), HasSubstr("one value"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].out[0] = s.kernel.ops[s.load].out[0]; }),
              HasSubstr("a second time"));
}

TEST(Verify, TypesAndEnums) {
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.types[0].lanes = 0; }), HasSubstr("no legal type"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.types[0].lanes = 65; }), HasSubstr("no legal type"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.types[0].scalar = static_cast<Scalar>(200); }),
              HasSubstr("no legal type"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[0].code = static_cast<OpCode>(250); }),
              HasSubstr("no code"));
}

TEST(Verify, ValuesOfABlockEndWithIt) {
  EXPECT_THAT(Refusal([](Sample& s) {
                s.kernel.ops[s.store].in[0] = s.kernel.ops[s.add].out[0];  // from inside the loop
              }),
              HasSubstr("not defined there"));
}

TEST(Verify, Buffers) {
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.buffers[1].written = false; }),
              HasSubstr("'y' is not written"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.load].buf = Buf{2}; }),
              HasSubstr("buffer 2 does not exist"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.buffers[1].name = "x"; }), HasSubstr("taken"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.buffers[1].name = "scratch"; }), HasSubstr("taken"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.scratch_bytes = -1; }), HasSubstr("scratch"));
}

TEST(Verify, BlocksFormATree) {
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.branch].block = 0; }),
              HasSubstr("not a block"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.branch].block = 99; }),
              HasSubstr("not a block"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.branch].block = s.kernel.ops[s.loop].block; }),
              HasSubstr("already has an owner"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.blocks.emplace_back(); }),
              HasSubstr("body of no op"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.blocks[0].ops.pop_back(); }),
              HasSubstr("in no block"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.blocks[0].ops.push_back(0); }),
              HasSubstr("listed twice"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.blocks[0].ops.push_back(-7); }),
              HasSubstr("does not exist"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.blocks.clear(); }), HasSubstr("no body"));
}

TEST(Verify, Loops) {
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.loop].imm = 0; }), HasSubstr("not positive"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.blocks[1].yields.clear(); }),
              HasSubstr("must match"));
  EXPECT_THAT(
      Refusal([](Sample& s) { s.kernel.blocks[1].yields[0] = s.kernel.blocks[1].params[0]; }),
      HasSubstr("changes its type"));
}

TEST(Verify, UnusedFieldsStayUntouched) {
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].imm = 1; }), HasSubstr("an immediate"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].fimm = -0.0; }), HasSubstr("immediate"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].table = {1}; }), HasSubstr("table"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].block = 1; }), HasSubstr("body"));
  EXPECT_THAT(Refusal([](Sample& s) { s.kernel.ops[s.add].buf = Buf{0}; }), HasSubstr("buffer"));
}

TEST(Verify, DepthIsBounded) {
  Builder b("deep");
  const Value c = b.Cmp(OpCode::kCmpEq, b.Int(0), b.Int(0));
  std::function<void(int)> nest = [&](int n) {
    if (n > 0) b.If(c, [&] { nest(n - 1); });
  };
  nest(kNestingMax);
  EXPECT_THAT(std::string(Verify(b.Finish()).message()), HasSubstr("deep"));
}

// One op on top of a few values of many types; the rule table, one refusal a line.
struct OneOp {
  OpCode code;
  Type type;
  std::vector<Type> in;
  int64_t imm;
  bool ok;
  std::vector<int16_t> table = {};
};

TEST(Verify, RuleTable) {
  constexpr Scalar I1 = Scalar::kI1, S8 = Scalar::kS8, U8 = Scalar::kU8, S32 = Scalar::kS32,
                   U32 = Scalar::kU32, F16 = Scalar::kF16, BF16 = Scalar::kBf16, F32 = Scalar::kF32,
                   F64 = Scalar::kF64;
  const std::vector<OneOp> rows = {
      {OpCode::kConst, {S8, 4}, {}, 255, true},
      {OpCode::kConst, {S8, 4}, {}, 256, false},
      {OpCode::kConst, {S8, 4}, {}, -129, false},
      {OpCode::kConst, {I1, 1}, {}, 2, false},
      {OpCode::kScalarArg, kI64, {}, 0, false},
      {OpCode::kTile, {S32, 1}, {}, 0, false},
      {OpCode::kIota, {U8, 64}, {}, 0, true},
      {OpCode::kIota, {F32, 4}, {}, 0, false},
      {OpCode::kSplat, {F16, 8}, {{F16, 1}}, 0, true},
      {OpCode::kSplat, {F16, 8}, {{F16, 2}}, 0, false},
      {OpCode::kAdd, {F16, 8}, {{F16, 8}, {F16, 8}}, 0, false},
      {OpCode::kAdd, {I1, 8}, {{I1, 8}, {I1, 8}}, 0, false},
      {OpCode::kRem, {F32, 1}, {{F32, 1}, {F32, 1}}, 0, false},
      {OpCode::kFma, {S32, 1}, {{S32, 1}, {S32, 1}, {S32, 1}}, 0, false},
      {OpCode::kFma, {F64, 2}, {{F64, 2}, {F64, 2}, {F64, 2}}, 0, true},
      {OpCode::kAnd, {I1, 8}, {{I1, 8}, {I1, 8}}, 0, true},
      {OpCode::kAnd, {F32, 8}, {{F32, 8}, {F32, 8}}, 0, false},
      {OpCode::kShl, {U8, 8}, {{U8, 8}}, 7, true},
      {OpCode::kShl, {U8, 8}, {{U8, 8}}, 8, false},
      {OpCode::kShr, {U8, 8}, {{U8, 8}}, -1, false},
      {OpCode::kAbs, {U8, 8}, {{U8, 8}}, 0, false},
      {OpCode::kSqrt, {S32, 8}, {{S32, 8}}, 0, false},
      {OpCode::kCmpLt, {I1, 8}, {{F32, 8}, {F32, 8}}, 0, true},
      {OpCode::kCmpLt, {I1, 4}, {{F32, 8}, {F32, 8}}, 0, false},
      {OpCode::kSelect, {F32, 8}, {{I1, 8}, {F32, 8}, {F32, 8}}, 0, true},
      {OpCode::kSelect, {F32, 8}, {{I1, 1}, {F32, 8}, {F32, 8}}, 0, false},
      {OpCode::kCvt, {F16, 8}, {{F32, 8}}, 0, true},
      {OpCode::kCvt, {F16, 8}, {{F64, 8}}, 0, false},
      {OpCode::kCvt, {BF16, 8}, {{S32, 8}}, 0, false},
      {OpCode::kCvt, {S32, 8}, {{I1, 8}}, 0, true},
      {OpCode::kCvt, {I1, 8}, {{S32, 8}}, 0, false},
      {OpCode::kCvt, {S32, 8}, {{S32, 8}}, 0, false},
      {OpCode::kBitcast, {S8, 16}, {{F32, 4}}, 0, true},
      {OpCode::kBitcast, {S8, 8}, {{F32, 4}}, 0, false},
      {OpCode::kBitcast, {I1, 8}, {{I1, 8}}, 0, false},
      {OpCode::kExtract, {F32, 1}, {{F32, 4}}, 3, true},
      {OpCode::kExtract, {F32, 1}, {{F32, 4}}, 4, false},
      {OpCode::kInsert, {F32, 4}, {{F32, 4}, {F32, 1}}, -1, false},
      {OpCode::kInsert, {F32, 4}, {{F32, 4}, {F64, 1}}, 0, false},
      {OpCode::kShuffle, {F32, 2}, {{F32, 4}, {F32, 4}}, 0, true, {0, 7}},
      {OpCode::kShuffle, {F32, 2}, {{F32, 4}, {F32, 4}}, 0, false, {0, 8}},
      {OpCode::kShuffle, {F32, 2}, {{F32, 4}, {F32, 4}}, 0, false, {0, -1}},
      {OpCode::kShuffle, {F32, 2}, {{F32, 4}, {F32, 4}}, 0, false, {0}},
      {OpCode::kReduceAdd, {F32, 1}, {{F32, 8}}, 0, true},
      {OpCode::kReduceAdd, {F32, 1}, {{F32, 6}}, 0, false},
      {OpCode::kReduceMax, {F16, 1}, {{F16, 8}}, 0, false},
      {OpCode::kDot4, {S32, 8}, {{S32, 8}, {S32, 8}, {S32, 8}}, 127, true},
      {OpCode::kDot4, {S32, 8}, {{S32, 8}, {S32, 8}, {S32, 8}}, 0, false},
      {OpCode::kDot4, {S32, 8}, {{S32, 8}, {S32, 8}, {S32, 8}}, 256, false},
      {OpCode::kDot4, {S32, 12}, {{S32, 12}, {S32, 12}, {S32, 12}}, 127, false},
      {OpCode::kDot4, {U32, 8}, {{U32, 8}, {U32, 8}, {U32, 8}}, 127, false},
  };
  for (const OneOp& row : rows) {
    Kernel k{.name = "one", .blocks = {Block{}}};
    Op op{.code = row.code, .type = row.type, .imm = row.imm, .table = row.table};
    const auto append = [&](Op o) {
      k.ops.push_back(std::move(o));
      k.blocks[0].ops.push_back(static_cast<int>(k.ops.size()) - 1);
    };
    for (const Type t : row.in) {
      const Value v{static_cast<uint32_t>(k.types.size())};
      k.types.push_back(t);
      append({.code = OpCode::kConst, .type = t, .out = {v}});
      op.in.push_back(v);
    }
    op.out = {Value{static_cast<uint32_t>(k.types.size())}};
    k.types.push_back(row.type);
    append(op);
    const absl::Status status = Verify(k);
    EXPECT_EQ(status.ok(), row.ok)
        << OpName(row.code) << " row " << &row - rows.data() << ": " << status;
  }
}

}  // namespace
}  // namespace cuvil::kernel
