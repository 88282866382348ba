#include "server/ops/values.h"

#include <gtest/gtest.h>

namespace cuvil::ops {
namespace {

const std::string kHash(64, 'a');

TEST(ValuesTest, CountsAreWholeAndPlain) {
  EXPECT_EQ(*ParseCount("0"), 0);
  EXPECT_EQ(*ParseCount("-12"), -12);
  EXPECT_EQ(*ParseCount("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", " 1", "1 ", "+1", "010", "1.5", "1e3", "0x10", "9223372036854775808",
                           "one", "-", "-0"}) {
    EXPECT_FALSE(ParseCount(text).ok()) << text;
  }
}

TEST(ValuesTest, SizesKnowBothFamiliesOfUnits) {
  EXPECT_EQ(*ParseSize("1048576"), 1048576);
  EXPECT_EQ(*ParseSize("64KiB"), 65536);
  EXPECT_EQ(*ParseSize("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(*ParseSize("2Gi"), int64_t{2} << 30);
  EXPECT_EQ(*ParseSize("2GB"), 2000000000);
  EXPECT_EQ(*ParseSize("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(*ParseSize("0"), 0);
  // 2G is 2^31 to some programs and 2e9 to others.
  for (const char* text :
       {"", "2G", "2g", "GiB", "-1", "1..5GiB", "0.3", "1 GiB", ".5GiB", "5.GiB", "1e9", "inf",
        "nan", "99999999999TiB", "1111111111111111111111111111111111111111111111"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(ValuesTest, SizeTextIsReadBackExactly) {
  EXPECT_EQ(SizeText(0), "0");
  EXPECT_EQ(SizeText(1000), "1000");
  EXPECT_EQ(SizeText(8 << 20), "8MiB");
  EXPECT_EQ(SizeText((8 << 20) + 1), "8388609");
  for (int64_t bytes : {int64_t{1}, int64_t{1536}, int64_t{3} << 40, int64_t{1023} << 20}) {
    EXPECT_EQ(*ParseSize(SizeText(bytes)), bytes);
  }
}

TEST(ValuesTest, DurationsComeBackInTheOptionsUnit) {
  EXPECT_DOUBLE_EQ(*ParseDuration("30", "s"), 30);
  EXPECT_DOUBLE_EQ(*ParseDuration("30s", "s"), 30);
  EXPECT_DOUBLE_EQ(*ParseDuration("250ms", "s"), 0.25);
  EXPECT_DOUBLE_EQ(*ParseDuration("5m", "s"), 300);
  EXPECT_DOUBLE_EQ(*ParseDuration("2h", "s"), 7200);
  EXPECT_DOUBLE_EQ(*ParseDuration("50", "ms"), 50);
  EXPECT_DOUBLE_EQ(*ParseDuration("50ms", "ms"), 50);
  EXPECT_DOUBLE_EQ(*ParseDuration("0.5s", "ms"), 500);
  for (const char* text : {"", "s", "-1s", "1 s", "1min", "1M", "nan", "1e3s", "1h30m"}) {
    EXPECT_FALSE(ParseDuration(text, "s").ok()) << text;
  }
}

TEST(ValuesTest, SwitchesAreWords) {
  for (const char* text : {"true", "on", "YES", "1"}) EXPECT_TRUE(*ParseSwitch(text)) << text;
  for (const char* text : {"false", "off", "No", "0"}) EXPECT_FALSE(*ParseSwitch(text)) << text;
  for (const char* text : {"", "2", "enable", "true "})
    EXPECT_FALSE(ParseSwitch(text).ok()) << text;
}

TEST(ValuesTest, ModelsHaveANameOrGetTheFiles) {
  const ModelEntry named = *ParseModel("smol=/models/a.gguf");
  EXPECT_EQ(named.name, "smol");
  EXPECT_EQ(named.path, "/models/a.gguf");
  EXPECT_EQ(ParseModel("/models/SmolLM2.Q4_1.gguf")->name, "SmolLM2.Q4_1");
  EXPECT_EQ(ParseModel("org/model=m.gguf")->name, "org/model");
  EXPECT_EQ(ParseModel("./x=y/z.gguf")->path, "./x=y/z.gguf");
  for (const char* text :
       {"", "a=", "=b.gguf", "a..b=/x", "a b=/x", "a\nb=/x", "/", "na/../me=/x"}) {
    EXPECT_FALSE(ParseModel(text).ok()) << text;
  }
  EXPECT_FALSE(ParseModel(std::string(129, 'n') + "=/x").ok());
}

TEST(ValuesTest, KeysAreHashesWithATenant) {
  const KeyEntry plain = *ParseKey("sha256:" + kHash);
  EXPECT_EQ(plain.tenant, "default");
  EXPECT_EQ(plain.weight, 1);
  EXPECT_FALSE(plain.admin);
  const KeyEntry full = *ParseKey("sha256:" + std::string(64, 'A') + ":acme:2.5:admin");
  EXPECT_EQ(full.hash, kHash);
  EXPECT_EQ(full.tenant, "acme");
  EXPECT_EQ(full.weight, 2.5);
  EXPECT_TRUE(full.admin);
  EXPECT_EQ(KeyText(full, false), "sha256:" + kHash + ":acme:2.5:admin");
  EXPECT_EQ(KeyText(full, true), "sha256:aaaaaaaa…:acme:2.5:admin");
  for (const std::string& text :
       {std::string("secret"), kHash, "sha256:" + kHash + "a", "sha256:" + std::string(64, 'g'),
        "sha256:" + kHash + ":", "sha256:" + kHash + ":a b", "sha256:" + kHash + ":t:0",
        "sha256:" + kHash + ":t:1:root", "sha256:" + kHash + ":t:1:admin:x", std::string()}) {
    EXPECT_FALSE(ParseKey(text).ok()) << text;
  }
}

TEST(ValuesTest, AKeyThatWasNotHashedIsNotRepeated) {
  const absl::Status status = ParseKey("cuvil_mysecretkey").status();
  EXPECT_EQ(status.message().find("mysecret"), absl::string_view::npos);
}

TEST(ValuesTest, SuggestionsAreClose) {
  const std::vector<std::string> names = {"listen", "threads", "queue_requests"};
  EXPECT_EQ(ClosestName("lisen", names), "listen");
  EXPECT_EQ(ClosestName("THREADS", names), "threads");
  EXPECT_EQ(ClosestName("queue_request", names), "queue_requests");
  EXPECT_EQ(ClosestName("banana", names), "");
  EXPECT_EQ(ClosestName("", names), "");
  EXPECT_EQ(ClosestName(std::string(1 << 20, 'x'), names), "");
  EXPECT_EQ(DidYouMean("thread", names), "; did you mean 'threads'?");
}

}  // namespace
}  // namespace cuvil::ops
