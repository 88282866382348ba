#include "compiler/import/gguf/rope.h"

#include <cmath>
#include <string>
#include <vector>

#include "compiler/import/gguf/test_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::gguf {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ModelConfig> Config(const ModelBuilder& builder) {
  const auto file = File::Parse(builder.Build());
  if (!file.ok()) return file.status();
  return ReadConfig(**file);
}

// The base is chosen so that the second of the two pairs is exactly 1/100.
TEST(Rope, PlainFrequencies) {
  const auto c = Config(ModelBuilder("llama"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(RopeFrequencies(*c, 0), ElementsAre(DoubleEq(1), DoubleEq(0.01)));
  EXPECT_EQ(RopeMagnitude(*c, 0), 1);
}

TEST(Rope, LinearScalingByEitherKey) {
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    ModelBuilder builder("llama");
    const auto c = Config(builder.Float(key, 4));
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_THAT(RopeFrequencies(*c, 1), ElementsAre(DoubleEq(0.25), DoubleEq(0.0025))) << key;
    EXPECT_EQ(RopeMagnitude(*c, 1), 1);
  }
  ModelBuilder none("llama");
  const auto c = Config(none.Float("rope.scaling.factor", 4).Text("rope.scaling.type", "none"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(RopeFrequencies(*c, 0), ElementsAre(DoubleEq(1), DoubleEq(0.01)));
}

TEST(Rope, Llama3Divisors) {
  ModelBuilder builder("llama");
  builder.tensors["rope_freqs.weight"] = {2};
  EXPECT_THAT(std::string(Config(builder).status().message()), HasSubstr("above 0"));  // zeros
  std::string bytes = builder.Build();
  const auto file = File::Parse(bytes);
  const float divisors[2] = {1.0f, 8.0f};
  std::memcpy(bytes.data() + (*file)->FindTensor("rope_freqs.weight")->offset, divisors, 8);
  const auto good = File::Parse(bytes);
  const auto c = ReadConfig(**good);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(RopeFrequencies(*c, 0), ElementsAre(DoubleEq(1), DoubleEq(0.00125)));
  builder.tensors["rope_freqs.weight"] = {3};
  EXPECT_THAT(std::string(Config(builder).status().message()), HasSubstr("f32 [2]"));
}

// YaRN by hand for dim 8, base 10000, original context 4096, factor 4. The pair that turns t times
// is 8 ln(4096 / (2 pi t)) / (2 ln 10000): 1.309 for t = 32 and 2.814 for t = 1, so the ramp runs
// from floor 1 to ceil 3. Pairs 0 and 1 keep their frequency, pair 2 is halfway, pair 3 is divided
// by 4.
TEST(Rope, YarnByHand) {
  ModelConfig c;
  c.rope.dim = 8;
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.factor = 4;
  c.rope.original_context = 4096;
  EXPECT_THAT(
      RopeFrequencies(c, 0),
      ElementsAre(DoubleEq(1), DoubleEq(0.1), DoubleEq(0.5 * (0.01 + 0.0025)), DoubleEq(0.00025)));
  EXPECT_DOUBLE_EQ(RopeMagnitude(c, 0), 1 + 0.1 * std::log(4.0));
}

TEST(Rope, ReadsYarn) {
  ModelBuilder builder("qwen2");
  builder.Text("rope.scaling.type", "yarn").Float("rope.scaling.factor", 4);
  builder.Int("rope.scaling.original_context_length", 32).Float("rope.scaling.attn_factor", 2);
  builder.Float("rope.scaling.yarn_beta_fast", 16);
  const auto c = Config(builder);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(c->rope.original_context, 32);
  EXPECT_EQ(c->rope.beta_fast, 16);
  EXPECT_EQ(c->rope.beta_slow, 1);
  EXPECT_DOUBLE_EQ(RopeMagnitude(*c, 0), 2 * (1 + 0.1 * std::log(4.0)));
  builder.Float("rope.scaling.factor", 0);
  EXPECT_THAT(std::string(Config(builder).status().message()), HasSubstr("rope.scaling.factor"));
}

TEST(Rope, LocalLayersIgnoreScaling) {
  ModelBuilder builder("gemma3");
  builder.Int("attention.sliding_window", 8).Int("attention.sliding_window_pattern", 2);
  builder.Float("rope.freq_base", 1e6f).Float("rope.scaling.factor", 8);
  const auto c = Config(builder);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(RopeFrequencies(*c, 0), ElementsAre(DoubleEq(1), DoubleEq(0.01)));
  EXPECT_THAT(RopeFrequencies(*c, 1), ElementsAre(DoubleEq(0.125), DoubleEq(0.000125)));
}

}  // namespace
}  // namespace cuvil::gguf
