#include "server/ops/keys.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "server/ops/test_keys.h"
#include "server/ops/values.h"

namespace cuvil::ops {
namespace {

TEST(KeySetTest, EachKeyIsItsTenant) {
  const KeySet keys =
      *KeySet::Create({TestKey("k1", "a"), TestKey("k2", "b", 3), TestKey("k3", "a")});
  EXPECT_FALSE(keys.empty());
  EXPECT_EQ(keys.Authenticate("k1")->id, "a");
  EXPECT_EQ(keys.Authenticate("k2")->id, "b");
  EXPECT_EQ(keys.Authenticate("k2")->weight, 3);
  EXPECT_EQ(keys.Authenticate("k3")->id, "a");
  EXPECT_FALSE(keys.Authenticate("k3")->admin);
}

TEST(KeySetTest, AnythingElseIsRefusedWithoutBeingRepeated) {
  const KeySet keys = *KeySet::Create({TestKey("k1", "a")});
  for (const std::string& key :
       {std::string(), std::string("k"), std::string("k1 "), std::string("K1"),
        std::string("k1\0", 3), std::string(100000, 'x'), HashOfKey("k1"),
        HashOfKey("k1").substr(7)}) {
    const absl::Status status = keys.Authenticate(key).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(status, keys.Authenticate("").status());
  }
  EXPECT_EQ(keys.Authenticate("secret-guess").status().message().find("guess"),
            absl::string_view::npos);
}

TEST(KeySetTest, NoKeysLetEveryoneIn) {
  const KeySet keys = *KeySet::Create({});
  EXPECT_TRUE(keys.empty());
  EXPECT_EQ(keys.Authenticate("")->id, "default");
  EXPECT_TRUE(keys.Authenticate("anything")->admin);
}

TEST(KeySetTest, AdminAccessIsTheKeysOwn) {
  KeyEntry admin = TestKey("boss", "ops");
  admin.admin = true;
  const KeySet keys = *KeySet::Create({TestKey("user", "a"), admin});
  EXPECT_EQ(*keys.Authorize("user", false), "a");
  EXPECT_EQ(keys.Authorize("user", true).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(*keys.Authorize("boss", true), "ops");
  EXPECT_EQ(keys.Authorize("", true).status(), keys.Authorize("nobody", false).status());
}

TEST(KeySetTest, AHashBelongsToOneTenant) {
  EXPECT_FALSE(KeySet::Create({TestKey("k", "a"), TestKey("k", "b")}).ok());
  EXPECT_FALSE(KeySet::Create({KeyEntry{.hash = "abc"}}).ok());
}

TEST(KeySetTest, GeneratedKeysWorkAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 32; ++i) {
    const NewKey made = *GenerateKey();
    EXPECT_TRUE(seen.insert(made.key).second);
    EXPECT_EQ(made.key.size(), 6u + 43u);
    EXPECT_TRUE(made.key.starts_with("cuvil_"));
    const KeySet keys = *KeySet::Create({*ParseKey(made.hash + ":t:2:admin")});
    EXPECT_TRUE(keys.Authenticate(made.key)->admin);
  }
}

// Fastest of many runs of the same number of checks: noise only adds.
double FastestSeconds(const KeySet& keys, const std::string& key) {
  double best = 1e9;
  for (int run = 0; run < 30; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(keys.Authenticate(key).ok());
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

TEST(KeySetTest, TheFirstOfManyKeysIsNoFasterThanTheLast) {
  std::vector<KeyEntry> entries;
  for (int i = 0; i < 2000; ++i) entries.push_back(TestKey("key" + std::to_string(i), "t"));
  const KeySet keys = *KeySet::Create(entries);
  const double first = FastestSeconds(keys, "key0");
  const double last = FastestSeconds(keys, "key1999");
  // An early exit would make the first about a thousand times faster; a factor of two leaves room
  // for a noisy machine.
  EXPECT_GT(first, last / 2);
  EXPECT_LT(first, last * 2);
}

}  // namespace
}  // namespace cuvil::ops
