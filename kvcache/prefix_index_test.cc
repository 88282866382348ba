#include "kvcache/prefix_index.h"

#include "gtest/gtest.h"

namespace cuvil::kvcache {
namespace {

using Tokens = std::vector<int32_t>;

class PrefixIndexTest : public ::testing::Test {
 protected:
  // An indexed page that nobody owns.
  NodeId Add(NodeId parent, const Tokens& tokens, const TrimPolicy& policy = {}) {
    const int32_t page = pool_.Take();
    const NodeId node = index_.AddChild(parent, policy, tokens, page);
    pool_.Unref(page, true);
    index_.SetEvictable(page, true);
    return node;
  }
  int32_t Evict() {
    const int32_t page = index_.Oldest();
    index_.Remove(page);
    pool_.Drop(page);
    return page;
  }
  void TearDown() override {
    const absl::Status status = index_.Check(pool_, pins_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  PagePool pool_{8};
  // Every hash is the same: only the comparison of tokens tells pages apart.
  PrefixIndex index_{8, 2, 6, 0};
  std::vector<NodeId> pins_;
};

TEST_F(PrefixIndexTest, CollidingKeysAreComparedNotTrusted) {
  const NodeId root = index_.AddRoot("a"), other = index_.AddRoot("b");
  const TrimPolicy trim = {.max_kv_len = 4};
  const NodeId x = Add(root, {1, 2}), y = Add(root, {2, 1}), z = Add(root, {1, 2}, trim);
  EXPECT_EQ(index_.FindChild(root, {}, Tokens{1, 2}), x);
  EXPECT_EQ(index_.FindChild(root, {}, Tokens{2, 1}), y);
  EXPECT_EQ(index_.FindChild(root, trim, Tokens{1, 2}), z);
  EXPECT_FALSE(index_.FindChild(root, {}, Tokens{1, 3}).valid());
  EXPECT_FALSE(index_.FindChild(root, trim, Tokens{2, 1}).valid());
  EXPECT_FALSE(index_.FindChild(other, {}, Tokens{1, 2}).valid());
  EXPECT_FALSE(index_.FindChild(x, {}, Tokens{1, 2}).valid());
  index_.Pin(other);
  pins_.push_back(other);
}

TEST_F(PrefixIndexTest, EvictsLeastRecentLeavesFirst) {
  const NodeId root = index_.AddRoot("");
  const NodeId a = Add(root, {1, 1});  // page 0, older than its child
  Add(a, {2, 2});                      // page 1
  Add(root, {3, 3});                   // page 2
  EXPECT_EQ(Evict(), 1);
  EXPECT_EQ(Evict(), 0);  // a leaf now
  EXPECT_EQ(Evict(), 2);
  EXPECT_EQ(index_.Oldest(), -1);
  EXPECT_EQ(index_.nodes(), 0);
  EXPECT_FALSE(index_.FindRoot("").valid());
}

TEST_F(PrefixIndexTest, InnerPageLeavesAHollowNodeThatCanBeFilled) {
  const NodeId root = index_.AddRoot("");
  const NodeId a = Add(root, {1, 1}), b = Add(a, {2, 2});
  const int32_t page_b = index_.page(b);
  pool_.Ref(page_b);
  index_.SetEvictable(page_b, false);
  EXPECT_EQ(Evict(), 0);
  EXPECT_EQ(index_.page(a), -1);
  EXPECT_EQ(index_.FindChild(a, {}, Tokens{2, 2}), b);
  EXPECT_EQ(Add(root, {1, 1}), a);
  EXPECT_GE(index_.page(a), 0);
}

TEST_F(PrefixIndexTest, PinnedNodeOutlivesItsPageAndFullIndexRefuses) {
  const NodeId root = index_.AddRoot("");
  const NodeId a = Add(root, {1, 1});
  index_.Pin(a);
  Evict();
  EXPECT_EQ(index_.nodes(), 2);
  for (int32_t i = 0; i < 4; ++i) Add(a, {i, i});
  const int32_t page = pool_.Take();
  EXPECT_FALSE(index_.AddChild(root, {}, Tokens{9, 9}, page).valid());
  EXPECT_FALSE(index_.AddRoot("new").valid());
  pool_.Unref(page, false);
  while (index_.Oldest() >= 0) Evict();
  EXPECT_EQ(index_.nodes(), 2);
  index_.Unpin(a);
  EXPECT_EQ(index_.nodes(), 0);
}

}  // namespace
}  // namespace cuvil::kvcache
