#include "compiler/passes/pipeline.h"

#include "compiler/ir/text.h"
#include "gtest/gtest.h"

namespace cuvil::passes {
namespace {

constexpr char kGraph[] = R"(graph @g(S{1..8}) {
  input %x : f32[S, 4]
  constant %one : f32[] = [1]
  constant %zero : f32[] = [0]
  %0 = mul %x, %one : f32[S, 4] loc("a")
  %1 = reshape %0 {shape = dims[4*S]} : f32[4*S] loc("b")
  %2 = reshape %1 {shape = dims[S, 4]} : f32[S, 4] loc("c")
  %3 = transpose %2 {perm = [1, 0]} : f32[4, S] loc("d")
  %4 = transpose %3 {perm = [1, 0]} : f32[S, 4] loc("e")
  %5 = exp %4 : f32[S, 4] loc("f")
  %6 = exp %x : f32[S, 4] loc("g")
  %7 = add %5, %6 : f32[S, 4] loc("h")
  %8 = add %7, %zero : f32[S, 4] loc("i")
  output "y" %8
}
)";

ir::Graph Parsed() {
  auto g = ir::Parse(kGraph);
  EXPECT_TRUE(g.ok()) << g.status();
  return *std::move(g);
}

TEST(Pipeline, SimplifiesToTheFewestNodes) {
  ir::Graph g = Parsed();
  ASSERT_TRUE(RunPasses(g, GraphPasses(), {.verify_each = true}).ok());
  // exp, add and the addition of +0, which would change -0, remain.
  EXPECT_EQ(g.body().size(), 3u) << ir::Print(g);
}

TEST(Pipeline, FusedNodesKeepTheUnionOfLocations) {
  ir::Graph g = Parsed();
  ASSERT_TRUE(RunPasses(g, GraphPasses()).ok());
  const auto sources = g.sources(g.node(g.body()[0]).loc);
  EXPECT_EQ(std::vector<std::string>(sources.begin(), sources.end()),
            (std::vector<std::string>{"f", "g"}));
}

TEST(Pipeline, FuelStopsAfterThatManyRewrites) {
  size_t nodes = 0;
  for (int64_t n = 0; n < 12; ++n) {
    ir::Graph g = Parsed();
    ir::Fuel fuel(n);
    ASSERT_TRUE(RunPasses(g, GraphPasses(), {.fuel = &fuel, .verify_each = true}).ok());
    EXPECT_LE(fuel.taken(), n);
    if (n == 0) nodes = g.body().size();
    EXPECT_LE(g.body().size(), nodes);
  }
  EXPECT_EQ(nodes, 9u);
}

TEST(Pipeline, SkipsByNameAndRefusesUnknownNames) {
  ir::Graph g = Parsed();
  ASSERT_TRUE(
      RunPasses(g, GraphPasses(), {.skip = {"canonicalise", "merge_common", "erase_dead"}}).ok());
  EXPECT_EQ(g.body().size(), 9u);
  EXPECT_FALSE(FindPasses({"no_such_pass"}).ok());
  EXPECT_EQ(FindPasses({"erase_dead"})->size(), 1u);
}

}  // namespace
}  // namespace cuvil::passes
