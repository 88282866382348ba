#include "compiler/import/gguf/vocab.h"

#include <memory>
#include <string>
#include <vector>

#include "compiler/import/gguf/test_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Parses and reads.
absl::StatusOr<text::VocabSpec> Read(FileBuilder builder) {
  const auto file = File::Parse(builder.Build());
  if (!file.ok()) return file.status();
  return ReadVocab(**file);
}

FileBuilder Spm() {
  FileBuilder b;
  b.Text("tokenizer.ggml.model", "llama");
  b.Texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "<|im_end|>"});
  b.Numbers<float>("tokenizer.ggml.scores", ValueType::kF32, {0, 0, 0, -1.5f, 0});
  b.Numbers<int32_t>("tokenizer.ggml.token_type", ValueType::kI32, {2, 3, 3, 1, 3});
  return b;
}

TEST(Vocab, ReadsSpmWithItsDefaults) {
  const auto v = Read(Spm());
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->kind, text::VocabKind::kSpm);
  EXPECT_THAT(v->tokens, ElementsAre("<unk>", "<s>", "</s>", "a", "<|im_end|>"));
  EXPECT_EQ(v->scores[3], -1.5f);
  EXPECT_EQ(v->types[0], text::TokenType::kUnknown);
  EXPECT_EQ(v->bos, 1);
  EXPECT_EQ(v->eos, 2);
  EXPECT_EQ(v->unk, 0);
  EXPECT_EQ(v->pad, -1);
  EXPECT_THAT(v->extra_eog, ElementsAre(4));
  EXPECT_TRUE(v->add_bos);
  EXPECT_FALSE(v->add_eos);
  EXPECT_TRUE(v->add_space_prefix);
}

TEST(Vocab, ReadsBpe) {
  FileBuilder b;
  b.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "smollm");
  b.Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"});
  b.Texts("tokenizer.ggml.merges", {"a b"});
  b.Int("tokenizer.ggml.eos_token_id", 3).Int("tokenizer.ggml.eot_token_id", 3);
  b.Int("tokenizer.ggml.padding_token_id", 0xffffffff);
  b.Bool("tokenizer.ggml.add_bos_token", false).Bool("tokenizer.ggml.add_space_prefix", false);
  b.Text("tokenizer.chat_template", "{{ x }}");
  const auto v = Read(b);
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->kind, text::VocabKind::kBpe);
  EXPECT_EQ(v->pre, "smollm");
  EXPECT_THAT(v->merges, ElementsAre("a b"));
  EXPECT_EQ(v->bos, -1);
  EXPECT_EQ(v->eos, 3);
  EXPECT_EQ(v->eot, 3);
  EXPECT_EQ(v->pad, -1);
  EXPECT_FALSE(v->add_bos);
  EXPECT_FALSE(v->add_space_prefix);
  EXPECT_EQ(v->chat_template, "{{ x }}");
}

TEST(Vocab, RefusesWhatCannotBe) {
  const auto error = [](FileBuilder b) { return std::string(Read(b).status().message()); };
  FileBuilder none;
  EXPECT_THAT(error(none), HasSubstr("'tokenizer.ggml.model' is missing"));
  EXPECT_THAT(error(none.Text("tokenizer.ggml.model", "bert")), HasSubstr("'bert'"));
  FileBuilder empty;
  empty.Text("tokenizer.ggml.model", "gpt2").Texts("tokenizer.ggml.tokens", {});
  EXPECT_THAT(error(empty), HasSubstr("is empty"));
  for (const uint32_t id : {5u, 0x7fffffffu, 0x80000000u, 0xfffffffeu}) {
    EXPECT_THAT(error(Spm().Int("tokenizer.ggml.bos_token_id", id)), HasSubstr("bos_token_id"));
  }
  EXPECT_THAT(error(Spm().Text("tokenizer.ggml.eos_token_id", "2")), HasSubstr("eos_token_id"));
  FileBuilder scores;
  scores.Text("tokenizer.ggml.model", "llama").Texts("tokenizer.ggml.tokens", {"a", "b"});
  scores.Numbers<float>("tokenizer.ggml.scores", ValueType::kF32, {0});
  EXPECT_THAT(error(scores), HasSubstr("1 entries for 2 tokens"));
  FileBuilder types;
  types.Text("tokenizer.ggml.model", "llama").Texts("tokenizer.ggml.tokens", {"a", "b"});
  types.Numbers<int32_t>("tokenizer.ggml.token_type", ValueType::kI32, {1, 7});
  EXPECT_THAT(error(types), HasSubstr("holds 7"));
}

}  // namespace
}  // namespace cuvil::gguf
