#include "compiler/ir/verify.h"

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::ir {
namespace {

using ::testing::HasSubstr;

// %0 = neg %x; %1 = add %0, %c; output y %1
Graph Good() {
  GraphBuilder b("good");
  const ValueId x = b.Input("x", TensorType{DType::kF32, {2}});
  b.Output("y", b.Add(b.Unary(OpKind::kNeg, x), b.ConstantF32({1, 2}, {2})));
  return *std::move(b).Finish();
}

void ExpectRefused(const Graph& graph, const std::string& why) {
  const absl::Status status = Verify(graph);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  Print(graph);  // a broken graph can still be looked at
  PrintCanonical(graph);
}

TEST(Verify, RefusesIdsOutOfRange) {
  Graph graph = Good();
  graph.node(graph.body()[1]).inputs[0] = ValueId{999};
  ExpectRefused(graph, "uses value 999");
  graph = Good();
  graph.mutable_body().push_back(NodeId{77});
  ExpectRefused(graph, "node 77");
  graph = Good();
  graph.mutable_outputs()[0].value = ValueId{-1};
  ExpectRefused(graph, "output 'y' is not defined");
  graph = Good();
  graph.node(graph.body()[0]).outputs[0] = ValueId{500};
  ExpectRefused(graph, "defines value 500");
  graph = Good();
  graph.node(graph.body()[0]).loc = LocId{12};
  ExpectRefused(graph, "unknown location");
}

TEST(Verify, RefusesUseBeforeDefinition) {
  Graph graph = Good();
  std::swap(graph.mutable_body()[0], graph.mutable_body()[1]);
  ExpectRefused(graph, "not defined before it");
}

TEST(Verify, RefusesANodePlacedTwice) {
  Graph graph = Good();
  graph.mutable_body().push_back(graph.body()[0]);
  ExpectRefused(graph, "in the body twice");
}

TEST(Verify, RefusesSharedOutputs) {
  Graph graph = Good();
  graph.node(graph.body()[1]).outputs = graph.node(graph.body()[0]).outputs;
  ExpectRefused(graph, "disagree on who defines it");
}

TEST(Verify, RefusesWrongArityOpAndAttributes) {
  Graph graph = Good();
  graph.node(graph.body()[0]).inputs.clear();
  ExpectRefused(graph, "takes 1..1 inputs");
  graph = Good();
  graph.node(graph.body()[0]).op = static_cast<OpKind>(250);
  ExpectRefused(graph, "op number 250");
  graph = Good();
  graph.node(graph.body()[0]).attrs.Set("axis", int64_t{1});
  ExpectRefused(graph, "has no attribute 'axis'");
  graph = Good();
  graph.node(graph.body()[0]).op = OpKind::kSoftmax;
  ExpectRefused(graph, "needs attribute 'axis'");
  graph.node(graph.body()[0]).attrs.Set("axis", true);
  ExpectRefused(graph, "attribute 'axis' is a bool, want an integer");
  graph.node(graph.body()[0]).attrs.Set("axis", int64_t{-1});
  ExpectRefused(graph, "axis -1 is outside");
}

TEST(Verify, RefusesTypesThatAreNotInferred) {
  Graph graph = Good();
  graph.value(graph.outputs()[0].value).type = TensorType{DType::kF32, {3}};
  ExpectRefused(graph, "has type f32[3], inferred f32[2]");
  graph = Good();
  graph.value(graph.inputs()[0]).type = TensorType{DType::kF32, {SymbolId{4}}};
  ExpectRefused(graph, "uses symbol 4");
}

TEST(Verify, RefusesRegions) {
  Graph graph = Good();
  graph.node(graph.body()[0]).regions.emplace_back();
  ExpectRefused(graph, "regions");
}

TEST(Verify, RefusesBadNamesAndSymbols) {
  Graph graph = Good();
  graph.AddInput("x", TensorType{});
  ExpectRefused(graph, "used twice");
  graph = Good();
  graph.AddOutput("y", graph.inputs()[0]);
  ExpectRefused(graph, "output name 'y'");
  graph = Good();
  graph.set_name("two words");
  ExpectRefused(graph, "not an identifier");
  graph = Good();
  graph.AddSymbol({"S", 5, 4, {}});
  ExpectRefused(graph, "range 5..4");
  graph = Good();
  graph.AddSymbol({"S", 1, 4, {9}});
  ExpectRefused(graph, "prefers 9");
}

TEST(Verify, RefusesBadConstantsAndWeights) {
  Graph graph = Good();
  graph.AddConstant("c", TensorType{DType::kF32, {2}}, {1, 2, 3});
  ExpectRefused(graph, "holds 3 bytes, its type 8");
  graph = Good();
  graph.AddConstant("c", TensorType{DType::kI8, {5000}}, std::vector<uint8_t>(5000));
  ExpectRefused(graph, "the limit is 4096");
  graph = Good();
  graph.AddConstant("c", TensorType{DType::kBool, {1}}, {7});
  ExpectRefused(graph, "bool not 0 or 1");
  graph = Good();
  const SymbolId s = graph.AddSymbol({"S", 1, 4, {}});
  graph.AddWeight("w", TensorType{DType::kF32, {s}});
  ExpectRefused(graph, "symbolic extent");
}

// One layer's state, appended once; `extra` may misuse it.
std::string Stateful(const std::string& lines, const std::string& output) {
  return "graph @g(S{1..4}) {\n input %k : f32[S, 1, 2]\n input %kv : kv<heads 1, dim 2, f32>\n"
         " input %step : step\n %0 = kv_append %kv, %k, %k, %step : kv<heads 1, dim 2, f32>\n" +
         lines + output + "}\n";
}

TEST(Verify, StateIsLinear) {
  const std::string out = " output \"kv\" %0\n";
  const std::string again = " %1 = kv_append %kv, %k, %k, %step : kv<heads 1, dim 2, f32>\n";
  const std::string read = " %1 = attention %k, %kv, %step {scale = 1.0} : f32[S, 1, 2]\n";
  const std::string good = " %1 = attention %k, %0, %step {scale = 1.0} : f32[S, 1, 2]\n";
  EXPECT_TRUE(Parse(Stateful(good, out)).ok()) << Parse(Stateful(good, out)).status();
  for (const auto& [lines, output, why] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {again, out, "after it was overwritten"},
           {read, out, "after it was overwritten"},
           {good, " output \"o\" %1\n", "writes state that is not an output"},
           {good, " output \"kv\" %kv\n", "overwritten by a later node"},
           {good, out + " output \"kv2\" %0\n", "returned twice"},
           {good, out + " output \"s\" %step\n", "is the step header"}}) {
    const auto graph = ParseUnverified(Stateful(lines, output));
    ASSERT_TRUE(graph.ok()) << graph.status();
    ExpectRefused(*graph, why);
  }
}

TEST(Verify, NamesTheLocation) {
  const auto graph = ParseUnverified(
      "graph @g() { input %x : f32[2] %0 = neg %x : f32[3] loc(\"blk.3\") output \"y\" %0 }");
  ASSERT_TRUE(graph.ok()) << graph.status();
  ExpectRefused(*graph, "(at blk.3)");
}

}  // namespace
}  // namespace cuvil::ir
