// Every model in tests/data/gguf reads as what tools/peer/make_tiny_gguf.py made it.

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/blocks.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/rope.h"
#include "compiler/import/gguf/tensors.h"
#include "compiler/import/gguf/vocab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::gguf {
namespace {

using ::testing::ElementsAre;

std::string Folder() {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  return std::string(root == nullptr ? "." : root) + "/tests/data/gguf/";
}

struct Model {
  std::shared_ptr<const File> file;
  ModelConfig config;
  ModelTensors tensors;
};

Model Read(const std::string& name) {
  const auto file = File::Open(Folder() + name + ".gguf");
  CUVIL_CHECK(file.ok(), file.status().ToString());
  const auto config = ReadConfig(**file);
  CUVIL_CHECK(config.ok(), config.status().ToString());
  const auto tensors = BindTensors(**file, *config);
  CUVIL_CHECK(tensors.ok(), tensors.status().ToString());
  return {*file, *config, *tensors};
}

TEST(TinyModels, AllReadAndDecode) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.path().extension() != ".gguf") continue;
    const Model model = Read(entry.path().stem().string());
    const auto vocab = ReadVocab(*model.file);
    ASSERT_TRUE(vocab.ok()) << vocab.status();
    EXPECT_EQ(static_cast<int64_t>(vocab->tokens.size()), model.config.vocab_size);
    for (const Tensor& tensor : model.file->tensors()) {
      std::vector<float> values(tensor.elements);
      DecodeRow(tensor.dtype, tensor.data.data(), tensor.elements, values.data());
      for (const float value : values) ASSERT_LT(std::abs(value), 10) << tensor.name;
    }
    ++models;
  }
  EXPECT_EQ(models, 20);
}

TEST(TinyModels, EveryWeightTypeIsThere) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2K, DType::kQ3K,
                            DType::kQ4K, DType::kQ5K, DType::kQ6K, DType::kIq4Nl}) {
    const std::string name(Info(dtype).name);
    const Model model = Read("llama-" + name);
    EXPECT_EQ(model.tensors.layers[0].ffn_down->dtype, dtype) << name;
    EXPECT_EQ(model.tensors.token_embd->dtype, dtype) << name;
    EXPECT_EQ(model.tensors.output_norm->dtype, DType::kF32) << name;
  }
}

TEST(TinyModels, LlamaVariants) {
  const Model plain = Read("llama-f32");
  EXPECT_TRUE(plain.config.tied_head);
  EXPECT_EQ(plain.config.head_dim, 32);  // not n_embd / n_head
  EXPECT_EQ(plain.config.name, "tiny llama-f32");
  const Model divided = Read("llama-f16");
  EXPECT_FALSE(divided.config.tied_head);
  EXPECT_NE(divided.tensors.output, divided.tensors.token_embd);
  ASSERT_EQ(divided.config.rope.divisors.size(), 16u);
  EXPECT_EQ(divided.config.rope.divisors.back(), 8.0f);
  EXPECT_EQ(Read("llama-bf16").config.rope.scaling, RopeScaling::kLinear);
}

TEST(TinyModels, QwenVariants) {
  const Model qwen2 = Read("qwen2-f16");
  ASSERT_NE(qwen2.tensors.layers[1].attn_v_bias, nullptr);
  EXPECT_THAT(qwen2.tensors.layers[1].attn_v_bias->shape(), ElementsAre(32));
  EXPECT_EQ(Read("qwen2-f32-yarn").config.rope.scaling, RopeScaling::kYarn);
  const Model qwen3 = Read("qwen3-f16");
  EXPECT_THAT(qwen3.tensors.layers[0].attn_q_norm->shape(), ElementsAre(32));
  EXPECT_THAT(qwen3.tensors.layers[0].attn_q->shape(), ElementsAre(128, 64));
}

TEST(TinyModels, Gemma3) {
  const Model model = Read("gemma3-f16");
  EXPECT_EQ(model.config.sliding_window, 8);
  EXPECT_THAT(model.config.local_layers, ElementsAre(true, true, true, true, true, false, true));
  EXPECT_EQ(RopeFrequencies(model.config, 0)[0], 1);
  EXPECT_EQ(RopeFrequencies(model.config, 5)[0], 0.125);
  EXPECT_NE(model.tensors.layers[6].ffn_post_norm, nullptr);
  const auto vocab = ReadVocab(*model.file);
  ASSERT_TRUE(vocab.ok());
  EXPECT_EQ(vocab->kind, text::VocabKind::kSpm);
  EXPECT_TRUE(vocab->add_bos);
  EXPECT_EQ(vocab->eos, 1);
}

}  // namespace
}  // namespace cuvil::gguf
