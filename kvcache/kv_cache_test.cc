#include "kvcache/kv_cache.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::kvcache {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Count(int64_t n, int32_t from = 0) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

class KvCacheTest : public ::testing::Test {
 protected:
  void Feed(SequencePages* s, const std::vector<int32_t>& tokens, int64_t length) {
    cache_.Reserve(s, length);
    cache_.Advance(s, tokens, length);
  }
  void Attach(SequencePages* s, const std::vector<int32_t>& tokens, int64_t tokens_max) {
    cache_.Attach(cache_.Find(s->space, s->trim, tokens, tokens_max), tokens.size(), s);
  }
  void Check(std::vector<const SequencePages*> sequences) {
    const absl::Status status = cache_.Check(sequences);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  KvCache cache_{{.pages = 8, .page_tokens = 4}};
};

TEST_F(KvCacheTest, FullPagesAreSharedPartialOnesAreNot) {
  const auto tokens = Count(11);
  SequencePages a, b;
  Feed(&a, tokens, 11);
  Attach(&b, tokens, 10);
  EXPECT_EQ(b.length, 8);
  EXPECT_THAT(b.pages, ElementsAre(a.pages[0], a.pages[1]));
  Feed(&b, tokens, 11);
  EXPECT_NE(b.pages[2], a.pages[2]);
  EXPECT_EQ(cache_.pool().owned(), 4);
  Check({&a, &b});
}

TEST_F(KvCacheTest, MatchStopsAtTokensMaxAndAtTheFirstDifference) {
  const auto tokens = Count(8);
  SequencePages a;
  Feed(&a, tokens, 8);
  EXPECT_EQ(cache_.Find("", {}, tokens, 8).tokens, 8);
  EXPECT_EQ(cache_.Find("", {}, tokens, 7).tokens, 4);
  auto other = tokens;
  other[7] = 99;
  EXPECT_EQ(cache_.Find("", {}, other, 8).tokens, 4);
  EXPECT_EQ(cache_.Find("salt", {}, tokens, 8).tokens, 0);
  Check({&a});
}

TEST_F(KvCacheTest, ReleasedPagesStayFindableUntilTheyAreNeeded) {
  const auto tokens = Count(32);
  SequencePages a, b;
  Feed(&a, tokens, 10);
  cache_.Release(&a);
  EXPECT_EQ(cache_.pool().cached(), 2);  // the partial page is free
  EXPECT_EQ(cache_.available(), 8);
  const auto others = Count(32, 100);
  Feed(&b, others, 28);
  EXPECT_EQ(cache_.counters().evictions, 1);
  EXPECT_EQ(cache_.Find("", {}, tokens, 8).tokens, 4);  // the end went first
  Check({&a, &b});
}

TEST_F(KvCacheTest, TwinsKeepTheirOwnPagesAndIndexOne) {
  const auto tokens = Count(8);
  SequencePages a, b;
  cache_.Reserve(&a, 8);
  cache_.Reserve(&b, 8);
  cache_.Advance(&a, tokens, 8);
  cache_.Advance(&b, tokens, 8);
  EXPECT_EQ(cache_.pool().owned(), 4);
  cache_.Release(&b);
  EXPECT_EQ(cache_.pool().owned(), 2);
  EXPECT_EQ(cache_.pool().free(), 6);
  Check({&a, &b});
}

TEST_F(KvCacheTest, TrimmedSequenceHoldsABoundedNumberOfPages) {
  const auto tokens = Count(200);
  SequencePages a;
  a.trim = {.max_kv_len = 10, .sinks = 2};
  for (int64_t n = 1; n <= 200; ++n) {
    Feed(&a, tokens, n);
    EXPECT_LE(static_cast<int64_t>(a.pages.size()) - a.holes, a.trim.PagesMax(200, 4, 1));
    Check({&a});
  }
  EXPECT_GE(a.pages[0], 0);
  EXPECT_EQ(a.pages[1], -1);
  EXPECT_EQ(a.holes, 47);
}

TEST_F(KvCacheTest, PagesPastMaxKvLenBelongToTheirPolicy) {
  const auto tokens = Count(20);
  const TrimPolicy trim = {.max_kv_len = 10, .sinks = 2}, other = {.max_kv_len = 9, .sinks = 1};
  SequencePages a;
  a.trim = trim;
  for (int64_t n = 4; n <= 20; n += 4) Feed(&a, tokens, n);
  EXPECT_THAT(a.pages, ElementsAre(::testing::Ge(0), -1, -1, ::testing::Ge(0), ::testing::Ge(0)));
  EXPECT_EQ(cache_.Find("", {}, tokens, 20).tokens, 8);
  EXPECT_EQ(cache_.Find("", other, tokens, 20).tokens, 8);
  const KvCache::Match match = cache_.Find("", trim, tokens, 20);
  EXPECT_EQ(match.tokens, 20);
  EXPECT_EQ(match.pages, a.pages);
  // Page 2 was dropped: a shorter start past max_kv_len would need it.
  EXPECT_EQ(cache_.Find("", trim, tokens, 16).tokens, 8);
  cache_.Release(&a);
  SequencePages b;
  b.trim = trim;
  Attach(&b, tokens, 20);
  EXPECT_EQ(b.holes, 2);
  Check({&a, &b});
}

TEST_F(KvCacheTest, EvictionUnderATrimmedOwnerLeavesItsTreeWhole) {
  const auto tokens = Count(20), others = Count(20, 100);
  SequencePages a, b;
  a.trim = {.max_kv_len = 10, .sinks = 2};
  for (int64_t n = 4; n <= 20; n += 4) Feed(&a, tokens, n);
  EXPECT_EQ(cache_.pool().cached(), 1);  // page 1: below max_kv_len, of use to others
  Feed(&b, others, 20);
  EXPECT_EQ(cache_.available(), 0);
  EXPECT_EQ(cache_.Find("", {}, tokens, 20).tokens, 4);
  EXPECT_EQ(cache_.Find("", a.trim, tokens, 20).tokens, 20);
  Check({&a, &b});
  cache_.Release(&b);
  cache_.DropCached();
  Check({&a, &b});
}

TEST_F(KvCacheTest, CheckNoticesAPageThatIsWrittenByTwo) {
  const auto tokens = Count(6);
  SequencePages a;
  Feed(&a, tokens, 6);
  SequencePages thief = a;
  thief.cursor = {};
  EXPECT_FALSE(cache_.Check(std::vector<const SequencePages*>{&a, &thief}).ok());
  EXPECT_FALSE(cache_.Check({}).ok());
}

}  // namespace
}  // namespace cuvil::kvcache
