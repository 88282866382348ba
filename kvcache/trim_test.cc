#include "kvcache/trim.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::kvcache {
namespace {

using ::testing::HasSubstr;

TEST(TrimPolicy, QuerySeesSinksAndWindow) {
  const TrimPolicy trim = {.max_kv_len = 6, .sinks = 2};
  EXPECT_TRUE(trim.Sees(5, 2));  // below max_kv_len: everything
  EXPECT_FALSE(trim.Sees(6, 2));
  EXPECT_TRUE(trim.Sees(6, 3));
  EXPECT_TRUE(trim.Sees(100, 1));
  EXPECT_FALSE(trim.Sees(100, 96));
  EXPECT_TRUE(trim.Sees(100, 97));
  EXPECT_TRUE((TrimPolicy{}.Sees(100, 50)));
}

TEST(TrimPolicy, QuerySeesMaxKvLenPositions) {
  const TrimPolicy trim = {.max_kv_len = 9, .sinks = 3};
  for (int64_t query = 0; query < 40; ++query) {
    int64_t seen = 0;
    for (int64_t key = 0; key <= query; ++key) seen += trim.Sees(query, key);
    EXPECT_EQ(seen, std::min<int64_t>(query + 1, 9)) << query;
  }
}

// A page is dead exactly when no later query sees any of it.
TEST(TrimPolicy, DeadPagesAgreeWithVisibility) {
  for (int64_t page_tokens : {1, 2, 3, 4}) {
    for (int64_t sinks : {0, 1, 4, 5}) {
      const TrimPolicy trim = {.max_kv_len = sinks + 2 * page_tokens + 1, .sinks = sinks};
      for (int64_t from = 0; from < 30; ++from) {
        for (int64_t page = 0; (page + 1) * page_tokens <= from; ++page) {
          bool seen = false;
          for (int64_t query = from; query < from + 40; ++query) {
            for (int64_t key = page * page_tokens; key < (page + 1) * page_tokens; ++key) {
              seen = seen || trim.Sees(query, key);
            }
          }
          EXPECT_EQ(trim.PageIsDead(page, page_tokens, from), !seen)
              << "page " << page << " of " << page_tokens << " from " << from;
        }
      }
    }
  }
}

// The bound is reached by no growth, however the steps are cut.
TEST(TrimPolicy, PagesMaxBoundsEveryGrowth) {
  for (int64_t page_tokens : {2, 4}) {
    for (int64_t sinks : {0, 3, 4}) {
      for (int64_t rows : {1, 3, 7}) {
        const TrimPolicy trim = {.max_kv_len = sinks + page_tokens + 3, .sinks = sinks};
        for (int64_t total = 1; total < 60; ++total) {
          int64_t most = 0;
          for (int64_t length = 0; length < total; length += rows) {
            const int64_t end = std::min(total, length + rows);
            int64_t held = 0;
            for (int64_t page = 0; page * page_tokens < end; ++page) {
              held += !trim.PageIsDead(page, page_tokens, length);
            }
            most = std::max(most, held);
          }
          EXPECT_LE(most, trim.PagesMax(total, page_tokens, rows));
        }
        EXPECT_EQ(trim.PagesMax(1000, page_tokens, rows), trim.PagesMax(100000, page_tokens, rows));
      }
    }
  }
}

TEST(TrimPolicy, KeyHoldsThePolicyPastMaxKvLenOnly) {
  const TrimPolicy trim = {.max_kv_len = 10, .sinks = 2};
  EXPECT_EQ(trim.KeyOfPage(1, 4), TrimPolicy{});  // [4, 8)
  EXPECT_EQ(trim.KeyOfPage(2, 4), trim);          // [8, 12)
  EXPECT_EQ(TrimPolicy{}.KeyOfPage(2, 4), TrimPolicy{});
}

TEST(TrimPolicy, ValidatesWithASentence) {
  EXPECT_TRUE(Validate({}, 32).ok());
  EXPECT_TRUE(Validate({.max_kv_len = 36, .sinks = 4}, 32).ok());
  EXPECT_THAT(Validate({.max_kv_len = 4, .sinks = 4}, 1).message(), HasSubstr("less than"));
  EXPECT_THAT(Validate({.max_kv_len = 35, .sinks = 4}, 32).message(), HasSubstr("a page"));
  EXPECT_THAT(Validate({.max_kv_len = -1}, 32).message(), HasSubstr("negative"));
  EXPECT_FALSE(Validate({.max_kv_len = 0, .sinks = -1}, 32).ok());
}

}  // namespace
}  // namespace cuvil::kvcache
