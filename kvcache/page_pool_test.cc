#include "kvcache/page_pool.h"

#include "gtest/gtest.h"

namespace cuvil::kvcache {
namespace {

TEST(PagePool, PagesGoRoundThroughTheirStates) {
  PagePool pool(3);
  const int32_t a = pool.Take(), b = pool.Take();
  EXPECT_EQ(a, 0);
  EXPECT_EQ(b, 1);
  pool.Ref(a);
  EXPECT_FALSE(pool.Unref(a, true));
  EXPECT_TRUE(pool.Unref(a, true));
  EXPECT_TRUE(pool.is_cached(a));
  EXPECT_TRUE(pool.Unref(b, false));
  EXPECT_TRUE(pool.is_free(b));
  EXPECT_EQ(pool.owned(), 0);
  EXPECT_EQ(pool.cached(), 1);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_TRUE(pool.Check().ok());
  pool.Ref(a);
  EXPECT_EQ(pool.owned(), 1);
  pool.Unref(a, true);
  pool.Drop(a);
  EXPECT_EQ(pool.free(), 3);
  EXPECT_TRUE(pool.Check().ok());
}

TEST(PagePoolDeathTest, MisuseStops) {
  PagePool pool(1);
  const int32_t a = pool.Take();
  EXPECT_DEATH(pool.Take(), "no free page");
  pool.Unref(a, false);
  EXPECT_DEATH(pool.Unref(a, false), "given back twice");
  EXPECT_DEATH(pool.Ref(a), "free page");
}

}  // namespace
}  // namespace cuvil::kvcache
