#include "compiler/import/gguf/config.h"

#include <cmath>
#include <memory>
#include <string>

#include "compiler/import/gguf/tensors.h"
#include "compiler/import/gguf/test_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ModelConfig> Config(const ModelBuilder& builder) {
  const auto file = File::Parse(builder.Build());
  if (!file.ok()) return file.status();
  return ReadConfig(**file);
}

std::string Error(const ModelBuilder& builder) {
  return std::string(Config(builder).status().message());
}

TEST(Config, ReadsLlama) {
  const auto c = Config(ModelBuilder("llama"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->n_layer, 2);
  EXPECT_EQ(c->n_embd, 16);
  EXPECT_EQ(c->n_ff, 24);
  EXPECT_EQ(c->n_head, 4);
  EXPECT_EQ(c->n_head_kv, 2);
  EXPECT_EQ(c->head_dim, 4);
  EXPECT_EQ(c->head_dim_v, 4);
  EXPECT_EQ(c->vocab_size, 10);
  EXPECT_EQ(c->context_length, 64);
  EXPECT_EQ(c->rope.dim, 4);
  EXPECT_EQ(c->rope.kind, RopeKind::kAdjacentPairs);
  EXPECT_EQ(c->activation, Activation::kSilu);
  EXPECT_TRUE(c->tied_head);
  EXPECT_FALSE(c->qkv_bias || c->attn_output_bias || c->ffn_bias || c->qk_norm || c->post_norms);
  EXPECT_EQ(c->attention_scale, 0.5);
  EXPECT_EQ(c->embedding_scale, 1);
  EXPECT_FALSE(c->is_local(0));
}

TEST(Config, ReadsQwen) {
  const auto qwen2 = Config(ModelBuilder("qwen2"));
  ASSERT_TRUE(qwen2.ok()) << qwen2.status();
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_EQ(qwen2->rope.kind, RopeKind::kHalfSplit);
  const auto qwen3 = Config(ModelBuilder("qwen3"));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status();
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_FALSE(qwen3->qkv_bias);
}

TEST(Config, ReadsGemma3) {
  ModelBuilder builder("gemma3");
  builder.Int("attention.sliding_window", 8).Int("attention.sliding_window_pattern", 2);
  builder.Float("rope.freq_base", 1e6f);
  const auto c = Config(builder);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE(c->post_norms && c->qk_norm);
  EXPECT_EQ(c->activation, Activation::kGeluTanh);
  EXPECT_EQ(c->embedding_scale, 4);
  EXPECT_EQ(c->sliding_window, 8);
  EXPECT_THAT(c->local_layers, ElementsAre(true, false));
  EXPECT_EQ(c->rope.base, 1e6);
  EXPECT_EQ(c->rope.local_base, 1e4);
  builder.metadata.erase("gemma3.attention.sliding_window_pattern");
  EXPECT_THAT(Config(builder)->local_layers, ElementsAre(true, true));  // every sixth is global
  builder.Set("gemma3.attention.sliding_window_pattern", [](FileBuilder& b) {
    b.Numbers<uint8_t>("gemma3.attention.sliding_window_pattern", ValueType::kBool, {0, 1});
  });
  EXPECT_THAT(Config(builder)->local_layers, ElementsAre(false, true));
  builder.Set("gemma3.attention.sliding_window_pattern", [](FileBuilder& b) {
    b.Numbers<uint8_t>("gemma3.attention.sliding_window_pattern", ValueType::kBool, {0, 1, 1});
  });
  EXPECT_THAT(Error(builder), HasSubstr("3 flags for 2 layers"));
}

TEST(Config, SeesOptionalTensors) {
  ModelBuilder builder("llama");
  builder.tensors["output.weight"] = {16, 10};
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    builder.tensors[blk + "attn_q.bias"] = builder.tensors[blk + "attn_output.bias"] = {16};
    builder.tensors[blk + "attn_k.bias"] = builder.tensors[blk + "attn_v.bias"] = {8};
    builder.tensors[blk + "ffn_up.bias"] = builder.tensors[blk + "ffn_gate.bias"] = {24};
    builder.tensors[blk + "ffn_down.bias"] = {16};
  }
  const auto file = File::Parse(builder.Build());
  const auto c = ReadConfig(**file);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE(c->qkv_bias && c->attn_output_bias && c->ffn_bias);
  EXPECT_FALSE(c->tied_head);
  const auto tensors = BindTensors(**file, *c);
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(tensors->output->name, "output.weight");
  ASSERT_EQ(tensors->layers.size(), 2u);
  EXPECT_EQ(tensors->layers[1].attn_q_bias->name, "blk.1.attn_q.bias");
  EXPECT_EQ(tensors->layers[1].attn_q_norm, nullptr);
  EXPECT_THAT(tensors->layers[0].ffn_down->shape(), ElementsAre(16, 24));
}

TEST(Config, TiedHeadIsTheEmbedding) {
  const auto file = File::Parse(ModelBuilder("llama").Build());
  const auto tensors = BindTensors(**file, *ReadConfig(**file));
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(tensors->output, tensors->token_embd);
}

TEST(Config, RefusesUnknownArchitectures) {
  ModelBuilder builder("llama");
  builder.Set("general.architecture",
              [](FileBuilder& b) { b.Text("general.architecture", "mamba"); });
  EXPECT_EQ(Error(builder),
            "the architecture 'mamba' of '<memory>' is not supported; supported are llama, qwen2, "
            "qwen3, gemma3");
  builder.metadata.erase("general.architecture");
  EXPECT_THAT(Error(builder), HasSubstr("'general.architecture' is missing"));
}

TEST(Config, RefusesEachTensorMissingOrMisshapen) {
  for (const char* arch : {"llama", "qwen2", "qwen3", "gemma3"}) {
    const ModelBuilder good(arch);
    for (const auto& [name, dims] : good.tensors) {
      ModelBuilder missing = good;
      missing.tensors.erase(name);
      EXPECT_THAT(Error(missing), HasSubstr("'" + name + "'")) << arch;
      ModelBuilder wrong = good;
      wrong.tensors[name].back() += 1;
      EXPECT_THAT(Error(wrong), HasSubstr("'" + name + "'")) << arch;
    }
  }
}

TEST(Config, ShapeErrorsSayGotAndWanted) {
  ModelBuilder builder("llama");
  builder.tensors["blk.1.attn_k.weight"] = {16, 9};
  EXPECT_EQ(Error(builder),
            "tensor 'blk.1.attn_k.weight' is f32 [9, 16], but its shape must be [8, 16]");
}

TEST(Config, RefusesTensorsItWouldIgnore) {
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.2.attn_norm.weight",
                           "blk.1.attn_q.bias", "blk.0.ffn_gate_inp.weight", "extra"}) {
    ModelBuilder builder("llama");
    builder.tensors[name] = {16};
    EXPECT_THAT(Error(builder), HasSubstr(std::string("'") + name + "'"));
  }
}

TEST(Config, RefusesHostileSizes) {
  const ModelBuilder good("llama");
  for (const char* suffix : {"block_count", "embedding_length", "feed_forward_length",
                             "context_length", "attention.head_count", "attention.head_count_kv"}) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1} << 40, uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}}) {
      ModelBuilder builder = good;
      EXPECT_THAT(Error(builder.Int(suffix, value)), HasSubstr(suffix)) << value;
    }
    ModelBuilder builder = good;
    builder.metadata.erase(std::string("llama.") + suffix);
    if (std::string(suffix) == "attention.head_count_kv") continue;  // defaults to head_count
    EXPECT_THAT(Error(builder), HasSubstr(suffix));
  }
  ModelBuilder heads = good;
  EXPECT_THAT(Error(heads.Int("attention.head_count_kv", 3)), HasSubstr("not a multiple of the 3"));
  ModelBuilder width = good;
  EXPECT_THAT(Error(width.Int("attention.head_count", 6)), HasSubstr("not a multiple of the 6"));
  for (const uint64_t dim : {uint64_t{0}, uint64_t{3}, uint64_t{6}, uint64_t{1} << 63}) {
    ModelBuilder rope = good;
    EXPECT_THAT(Error(rope.Int("rope.dimension_count", dim)), HasSubstr("rope.dimension_count"));
  }
}

TEST(Config, RefusesBadNumbers) {
  for (const float value : {0.0f, -1.0f, 1.0f, NAN, INFINITY}) {
    ModelBuilder builder("llama");
    builder.Float("attention.layer_norm_rms_epsilon", value);
    EXPECT_THAT(Error(builder), HasSubstr("rms_epsilon"));
  }
  for (const float value : {0.0f, -1.0f, 1.0f, NAN, INFINITY}) {
    ModelBuilder builder("llama");
    EXPECT_THAT(Error(builder.Float("rope.freq_base", value)), HasSubstr("rope.freq_base"));
  }
  ModelBuilder builder("llama");
  EXPECT_THAT(Error(builder.Float("attention.scale", NAN)), HasSubstr("attention.scale"));
}

TEST(Config, RefusesFeaturesItLacks) {
  ModelBuilder experts("llama");
  EXPECT_THAT(Error(experts.Int("expert_count", 8)), HasSubstr("mixture of experts"));
  ModelBuilder scale("llama");
  EXPECT_THAT(Error(scale.Float("logit_scale", 0.5f)), HasSubstr("logit_scale"));
  ModelBuilder window("llama");
  EXPECT_THAT(Error(window.Int("attention.sliding_window", 8)), HasSubstr("sliding window"));
  ModelBuilder wide("llama");
  EXPECT_TRUE(Config(wide.Int("attention.sliding_window", 64)).ok());
  ModelBuilder rope("llama");
  rope.Float("rope.scaling.factor", 2).Text("rope.scaling.type", "longrope");
  EXPECT_THAT(Error(rope), HasSubstr("longrope"));
}

TEST(Config, TakesEqualSizesPerLayer) {
  ModelBuilder builder("llama");
  const char* key = "llama.attention.head_count_kv";
  builder.Set(key, [key](FileBuilder& b) { b.Numbers<int32_t>(key, ValueType::kI32, {2, 2}); });
  EXPECT_TRUE(Config(builder).ok());
  builder.Set(key, [key](FileBuilder& b) { b.Numbers<int32_t>(key, ValueType::kI32, {2, 4}); });
  EXPECT_THAT(Error(builder), HasSubstr("different sizes per layer"));
}

TEST(Config, HeadLengthMayDifferFromWidth) {
  ModelBuilder builder("qwen3");
  builder.Int("attention.key_length", 8).Int("attention.value_length", 4);
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    builder.tensors[blk + "attn_q.weight"] = {16, 32};
    builder.tensors[blk + "attn_k.weight"] = {16, 16};
    builder.tensors[blk + "attn_q_norm.weight"] = {8};
    builder.tensors[blk + "attn_k_norm.weight"] = {8};
  }
  const auto c = Config(builder);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->head_dim, 8);
  EXPECT_EQ(c->rope.dim, 8);
  EXPECT_DOUBLE_EQ(c->attention_scale, 1 / std::sqrt(8.0));
}

}  // namespace
}  // namespace cuvil::gguf
