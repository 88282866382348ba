#include "compiler/ir/random_graph.h"

#include <cmath>
#include <set>

#include "compiler/ir/rewrite.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "gtest/gtest.h"

namespace cuvil::ir {
namespace {

constexpr uint64_t kSeeds = 200;

TEST(RandomGraph, VerifiesAndRoundTrips) {
  std::set<OpKind> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const RandomGraph random = MakeRandomGraph(seed, {.symbolic = seed % 4 != 0});
    ASSERT_TRUE(Verify(random.graph).ok());
    ASSERT_FALSE(random.graph.outputs().empty());
    const std::string text = Print(random.graph);
    const auto again = Parse(text);
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    ASSERT_EQ(Print(*again), text);
    ASSERT_EQ(PrintCanonical(*again), PrintCanonical(random.graph));
    for (NodeId id : random.graph.body()) seen.insert(random.graph.node(id).op);
  }
  // The generator reaches every op it promises.
  EXPECT_GE(seen.size(), 36u);
}

TEST(RandomGraph, SameSeedSameGraph) {
  EXPECT_EQ(Print(MakeRandomGraph(7).graph), Print(MakeRandomGraph(7).graph));
  EXPECT_NE(Print(MakeRandomGraph(7).graph), Print(MakeRandomGraph(8).graph));
}

TEST(RandomGraph, ValuesStayTame) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RandomGraph random = MakeRandomGraph(seed);
    const Bindings bindings = RandomBindings(random.graph, seed);
    const RandomArguments arguments = MakeRandomArguments(random, bindings, seed);
    const auto results = interp::Evaluate(random.graph, arguments.arguments);
    ASSERT_TRUE(results.ok()) << results.status() << "\n" << Print(random.graph);
    for (const auto& [name, tensor] : results->tensors) {
      for (double value : tensor.ToDoubles()) {
        ASSERT_LT(std::fabs(value), 1e8) << name << "\n" << Print(random.graph);
      }
    }
  }
}

}  // namespace
}  // namespace cuvil::ir
