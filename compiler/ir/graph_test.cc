#include "compiler/ir/graph.h"

#include "compiler/ir/builder.h"
#include "compiler/ir/rewrite.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::ir {
namespace {

using ::testing::ElementsAre;

TensorType F32(std::vector<Dim> dims) { return {DType::kF32, std::move(dims)}; }

TEST(Graph, LocationsAreSets) {
  Graph graph;
  const LocId a = graph.Loc("a");
  const LocId b = graph.Loc("b");
  EXPECT_EQ(graph.UnionLoc(a, b), graph.UnionLoc(b, a));
  EXPECT_EQ(graph.UnionLoc(a, LocId{}), a);
  EXPECT_EQ(graph.UnionLoc(graph.UnionLoc(a, b), a), graph.UnionLoc(a, b));
  EXPECT_THAT(graph.sources(graph.UnionLoc(b, a)), ElementsAre("a", "b"));
  EXPECT_EQ(graph.Loc(""), LocId{});
}

TEST(Builder, InfersTypesWhileBuilding) {
  GraphBuilder b("mlp");
  const SymbolId s = b.AddSymbol({"S", 1, 512, {1, 64}});
  const ValueId x = b.Input("x", F32({s, 64}));
  const ValueId w = b.Weight("w", TensorType{DType::kQ4_0, {96, 64}});
  const ValueId y = b.Silu(b.MatMul(x, w, {.transpose_b = true}));
  EXPECT_EQ(b.type(y), Type(F32({s, 96})));
  b.Output("y", y);
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->body().size(), 2u);
  EXPECT_EQ(graph->FindNamed("w"), w);
  EXPECT_FALSE(graph->FindNamed("v").valid());
}

TEST(Builder, FirstErrorSticksAndNamesThePlace) {
  GraphBuilder b("bad");
  const ValueId x = b.Input("x", F32({3}));
  b.SetLoc("blk.0.attn_q.weight");
  const ValueId y = b.Add(x, b.Input("z", F32({4})));
  EXPECT_FALSE(y.valid());
  EXPECT_FALSE(b.Mul(y, x).valid());
  b.Output("y", y);
  const auto graph = std::move(b).Finish();
  EXPECT_EQ(graph.status().message(),
            "add: extents 3 and 4 do not broadcast (at blk.0.attn_q.weight)");
}

TEST(Builder, ScalarsRoundToTheirType) {
  GraphBuilder b("scalars");
  const ValueId big = b.Scalar(1e10, DType::kI32);
  EXPECT_EQ(b.graph().FindConstant(big)->bytes, (std::vector<uint8_t>{0xff, 0xff, 0xff, 0x7f}));
  const ValueId half = b.Scalar(1.0, DType::kF16);
  EXPECT_EQ(b.graph().FindConstant(half)->bytes, (std::vector<uint8_t>{0x00, 0x3c}));
}

// y = relu(neg(x)) with a dead exp beside it.
struct Small {
  Graph graph;
  ValueId x, negated, result;
};

Small MakeSmall() {
  GraphBuilder b("small");
  const ValueId x = b.Input("x", F32({4}));
  b.SetLoc("first");
  const ValueId negated = b.Unary(OpKind::kNeg, x);
  b.SetLoc("second");
  const ValueId result = b.Unary(OpKind::kRelu, negated);
  b.Add(b.Unary(OpKind::kExp, negated), b.Weight("unused", F32({4})));
  b.Output("y", result);
  return {*std::move(b).Finish(), x, negated, result};
}

TEST(Rewrite, CountsUsesAndUsers) {
  const Small small = MakeSmall();
  EXPECT_EQ(CountUses(small.graph)[small.negated.value], 2);
  EXPECT_EQ(CountUses(small.graph)[small.result.value], 1);
  EXPECT_EQ(UsersOf(small.graph, small.negated).size(), 2u);
}

TEST(Rewrite, ErasesDeadCodeAndItsWeights) {
  Small small = MakeSmall();
  EXPECT_EQ(EraseDead(small.graph), 2);
  EXPECT_TRUE(small.graph.weights().empty());
  EXPECT_TRUE(Verify(small.graph).ok());
  EXPECT_EQ(EraseDead(small.graph), 0);
}

TEST(Rewrite, ReplacesWithUnionOfLocations) {
  Small small = MakeSmall();
  Graph& graph = small.graph;
  const NodeId relu = graph.value(small.result).node;
  const auto clamp = InsertBefore(graph, relu, OpKind::kClamp, {small.x},
                                  {{"min", -1.0}, {"max", 0.0}}, graph.Loc("third"));
  ASSERT_TRUE(clamp.ok());
  const ValueId clamped = graph.node(*clamp).outputs[0];
  ReplaceAllUses(graph, small.result, clamped);
  EXPECT_EQ(graph.outputs()[0].value, clamped);
  EXPECT_THAT(graph.sources(graph.node(*clamp).loc), ElementsAre("second", "third"));
  EXPECT_TRUE(Verify(graph).ok());
  EXPECT_EQ(EraseDead(graph), 4);
  EXPECT_EQ(graph.body().size(), 1u);
}

TEST(Rewrite, RefusesAnIllegalInsertionWithoutChange) {
  Small small = MakeSmall();
  const std::string before = Print(small.graph);
  const NodeId relu = small.graph.value(small.result).node;
  EXPECT_FALSE(InsertBefore(small.graph, relu, OpKind::kNot, {small.x}, {}, {}).ok());
  EXPECT_EQ(Print(small.graph), before);
}

TEST(Rewrite, FuelRunsOut) {
  Fuel fuel(2);
  EXPECT_TRUE(fuel.Take());
  EXPECT_TRUE(fuel.Take());
  EXPECT_FALSE(fuel.Take());
  EXPECT_EQ(fuel.taken(), 2);
  EXPECT_TRUE(Fuel().Take());
}

}  // namespace
}  // namespace cuvil::ir
