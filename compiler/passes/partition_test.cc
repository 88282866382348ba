#include "compiler/passes/partition.h"

#include <set>

#include "compiler/passes/test_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::passes {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using K = GroupKind;

std::vector<K> Kinds(const std::vector<Group>& groups) {
  std::vector<K> kinds;
  for (const Group& g : groups) kinds.push_back(g.kind);
  return kinds;
}

std::vector<Group> MustPartition(const ir::Graph& graph) {
  auto groups = Partition(graph);
  EXPECT_TRUE(groups.ok()) << groups.status();
  return groups.ok() ? *std::move(groups) : std::vector<Group>{};
}

TEST(Partition, ALlamaLayerIsFiveGroups) {
  const ir::Graph graph = MakeTestGraph();
  const std::vector<Group> groups = MustPartition(graph);
  EXPECT_THAT(Kinds(groups),
              ElementsAre(K::kEmbed, K::kHeads, K::kAttention, K::kLinear, K::kGated, K::kLinear,
                          K::kHeads, K::kAttention, K::kLinear, K::kGated, K::kLinear, K::kLogits));
  const Group& heads = groups[6];
  EXPECT_EQ(heads.layer, 1);
  EXPECT_EQ(heads.heads, 4);
  EXPECT_EQ(heads.kv_heads, 2);
  EXPECT_EQ(heads.head_dim, 32);
  EXPECT_EQ(heads.scale, 0.25);
  EXPECT_EQ(heads.norm_eps, 1e-5);
  EXPECT_EQ(heads.rope.dim, 32);
  EXPECT_FALSE(heads.rope.half);
  EXPECT_EQ(heads.input, groups[5].output);
  EXPECT_THAT(heads.sources,
              AllOf(Contains("blk.1.attn_norm.weight"), Contains("blk.1.attn_q.weight"),
                    Contains("blk.1.attn_k.weight"), Contains("blk.1.attn_v.weight")));
  EXPECT_TRUE(groups[5].residual.valid());
  EXPECT_FALSE(groups[4].gelu);
  EXPECT_EQ(graph.value(groups[4].weights[0]).name, "blk.0.ffn_gate.weight");
  EXPECT_EQ(graph.value(groups[4].weights[1]).name, "blk.0.ffn_up.weight");
}

TEST(Partition, EveryNodeIsInOneGroup) {
  for (const bool variant : {false, true}) {
    const ir::Graph graph =
        MakeTestGraph({.post_norms = variant, .bias = variant, .qk_norm = variant});
    std::set<int32_t> seen;
    for (const Group& g : MustPartition(graph)) {
      EXPECT_STRNE(g.rule, "");
      for (const ir::NodeId id : g.nodes) EXPECT_TRUE(seen.insert(id.value).second);
    }
    EXPECT_EQ(seen.size(), graph.body().size());
  }
}

TEST(Partition, PostNormsAreGroupsOfTheirOwn) {
  const auto groups = MustPartition(MakeTestGraph({.layers = 1, .post_norms = true}));
  EXPECT_THAT(Kinds(groups),
              ElementsAre(K::kEmbed, K::kHeads, K::kAttention, K::kLinear, K::kNormAdd, K::kGated,
                          K::kLinear, K::kNormAdd, K::kLogits));
  EXPECT_FALSE(groups[3].residual.valid());
  EXPECT_EQ(groups[4].input, groups[3].output);
  EXPECT_EQ(groups[4].residual, groups[0].output);
}

TEST(Partition, SeesWhatModelsVary) {
  const auto groups = MustPartition(MakeTestGraph({.bias = true,
                                                   .qk_norm = true,
                                                   .half_rope = true,
                                                   .softcap = 30,
                                                   .window = 16,
                                                   .activation = ir::OpKind::kGeluTanh}));
  ASSERT_EQ(groups.size(), 12u);
  for (const ir::ValueId bias : groups[1].biases) EXPECT_TRUE(bias.valid());
  EXPECT_TRUE(groups[1].q_norm.valid());
  EXPECT_TRUE(groups[1].k_norm.valid());
  EXPECT_EQ(groups[1].qk_norm_eps, 1e-6);
  EXPECT_TRUE(groups[1].rope.half);
  EXPECT_EQ(groups[2].window, 0);
  EXPECT_EQ(groups[7].window, 16);
  EXPECT_TRUE(groups[4].gelu);
  EXPECT_EQ(groups[11].softcap, 30);
  const auto plain = MustPartition(MakeTestGraph({.rope_dim = 0}));
  EXPECT_EQ(plain[1].rope.dim, 0);
}

TEST(Partition, RefusesWhatNoKernelTakes) {
  const auto relu = Partition(MakeTestGraph({.activation = ir::OpKind::kRelu}));
  EXPECT_EQ(relu.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(relu.status().message()),
              AllOf(HasSubstr("'relu'"), HasSubstr("blk.0.ffn_act")));
  const auto capped = Partition(MakeTestGraph({.attention_softcap = 50}));
  EXPECT_EQ(capped.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(capped.status().message()),
              AllOf(HasSubstr("'attention'"), HasSubstr("blk.0.attention")));
}

}  // namespace
}  // namespace cuvil::passes
