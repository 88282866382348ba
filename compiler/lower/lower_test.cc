// The structure of lowered programs; their results are compared in tests/conformance.
#include "compiler/lower/lower.h"

#include "compiler/ir/builder.h"
#include "gmock/gmock.h"

namespace cuvil::lower {
namespace {

using ir::Dim;
using ir::GraphBuilder;
using ir::OpKind;
using ir::TensorType;
using ir::ValueId;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

constexpr kernel::Machine kMachine{.lanes = 8, .registers = 16};

ir::Graph Finish(GraphBuilder b) {
  absl::StatusOr<ir::Graph> g = std::move(b).Finish();
  CUVIL_CHECK(g.ok(), g.status().message());
  return *std::move(g);
}

Lowered Lower(const ir::Graph& g) {
  absl::StatusOr<Lowered> l = LowerGraph(g, kMachine);
  CUVIL_CHECK(l.ok(), l.status().message());
  return *std::move(l);
}

const runtime::Plan& PlanOf(const Lowered& l) { return l.program.plans[0]; }

TEST(Lower, AnElementwiseChainIsOneLaunchWithoutTemporaries) {
  GraphBuilder b("g");
  const Dim s = b.AddSymbol({.name = "S", .min = 1, .max = 100});
  b.SetLoc("x.py:1");
  const ValueId x = b.Input("x", TensorType{DType::kF32, {s, 64}});
  const ValueId w = b.Weight("w", TensorType{DType::kF32, {64}});
  const ValueId y = b.Mul(b.Silu(x), w);
  b.SetLoc("x.py:2");
  b.Output("y", b.Transpose(b.Add(y, x), {1, 0}));
  const Lowered l = Lower(Finish(std::move(b)));
  EXPECT_EQ(PlanOf(l).launches.size(), 1u);
  EXPECT_EQ(PlanOf(l).arena_bytes, 0);
  EXPECT_THAT(l.program.inputs, ElementsAre(Field(&runtime::BufferDecl::name, "x"),
                                            Field(&runtime::BufferDecl::name, "w")));
  const runtime::Decision& d = l.program.decisions[PlanOf(l).launches[0].decision];
  EXPECT_EQ(d.rule, "lower.fuse");
  EXPECT_THAT(d.sources, ElementsAre("x.py:1", "x.py:2"));
}

TEST(Lower, WorkIsNotRepeatedForSeveralReaders) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", TensorType{DType::kF32, {64}});
  const ValueId t = b.Tanh(x);
  b.Output("a", b.Unary(OpKind::kNeg, t));
  b.Output("b", b.Unary(OpKind::kAbs, t));
  const Lowered l = Lower(Finish(std::move(b)));
  EXPECT_EQ(PlanOf(l).launches.size(), 3u);
  EXPECT_THAT(l.program.decisions,
              Contains(Field(&runtime::Decision::reason, HasSubstr("2 readers"))));
}

TEST(Lower, TemporariesShareTheArenaAndFitTheLargestSymbols) {
  GraphBuilder b("g");
  const Dim s = b.AddSymbol({.name = "S", .min = 1, .max = 100});
  ValueId x = b.Input("x", TensorType{DType::kF32, {s, 64}});
  for (int i = 0; i < 6; ++i) x = b.Softmax(x, 1);
  b.Output("y", x);
  const Lowered l = Lower(Finish(std::move(b)));
  EXPECT_EQ(PlanOf(l).slots.size(), 5u);
  EXPECT_EQ(PlanOf(l).arena_bytes, 2 * 100 * 64 * 4);
  EXPECT_EQ(l.kernels.size(), 1u);  // six launches of one kernel
}

TEST(Lower, AGridOfAProductOfSymbolsIsAHeaderEntry) {
  GraphBuilder b("g");
  const Dim s = b.AddSymbol({.name = "S", .min = 1, .max = 10});
  const Dim t = b.AddSymbol({.name = "T", .min = 1, .max = 20});
  const ValueId x = b.Input("x", TensorType{DType::kF32, {s, t}});
  b.Output("y", b.Unary(OpKind::kNeg, x));
  const ir::Graph g = Finish(std::move(b));
  const Lowered l = Lower(g);
  EXPECT_THAT(l.program.header, ElementsAre("S", "T", "dim:S*T"));
  EXPECT_THAT(*HeaderValues(g, l, {3, 7}), ElementsAre(3, 7, 21));
  EXPECT_EQ(HeaderValues(g, l, {3, 21}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HeaderValues(g, l, {3}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Lower, ReshapeIsFree) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", TensorType{DType::kF32, {6, 4}});
  b.Output("y", b.Reshape(b.Unary(OpKind::kExp, x), {24}));
  const Lowered l = Lower(Finish(std::move(b)));
  ASSERT_EQ(PlanOf(l).launches.size(), 1u);
  EXPECT_EQ(PlanOf(l).arena_bytes, 0);
}

TEST(Lower, WhatIsMissingSaysSo) {
  GraphBuilder b("g");
  b.SetLoc("model.py:7");
  const ValueId w = b.Weight("w", TensorType{DType::kQ6K, {4, 256}});
  b.Output("y", b.Dequantise(w));
  const absl::Status s = LowerGraph(Finish(std::move(b)), kMachine).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(s.message()), HasSubstr("dequantise"));
  EXPECT_THAT(std::string(s.message()), HasSubstr("q6_k"));
  EXPECT_THAT(std::string(s.message()), HasSubstr("model.py:7"));
}

TEST(Lower, StateIsRefused) {
  GraphBuilder b("g");
  const ValueId kv = b.Input("kv", ir::KvType{.heads = 1, .dim = 8});
  const ValueId step = b.Input("step", ir::StepType{});
  const ValueId q = b.Input("q", TensorType{DType::kF32, {3, 1, 8}});
  b.Output("y", b.Attention(q, kv, step, {}));
  EXPECT_EQ(LowerGraph(Finish(std::move(b)), kMachine).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace cuvil::lower
