// The default model's own vocabulary and template against the committed goldens: 161 strings whose
// ids two independent tokenizers agree on.
#include "text/tokenizer.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "compiler/import/gguf/file.h"
#include "compiler/import/gguf/vocab.h"
#include "gtest/gtest.h"
#include "text/chat_template.h"

namespace cuvil {
namespace {

constexpr size_t kGoldenBytesMax = 16 << 20;
constexpr size_t kStrings = 161;
constexpr size_t kPrompts = 16;

std::string SourceDir() {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  return root == nullptr ? "." : root;
}

std::string ModelPath() {
  if (const char* path = std::getenv("CUVIL_MODEL")) return path;
  return SourceDir() + "/.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::vector<Json> ReadLines(const std::string& name) {
  const auto text = ReadFile(SourceDir() + "/tests/data/tokenize/" + name, kGoldenBytesMax);
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<Json> lines;
  for (size_t at = 0; text.ok() && at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const auto line = ParseJson(std::string_view(*text).substr(at, end - at));
    EXPECT_TRUE(line.ok()) << line.status();
    if (line.ok()) lines.push_back(*line);
    at = end + 1;
  }
  return lines;
}

class ModelTokenizer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(std::filesystem::exists(ModelPath()))
        << "no model file at " << ModelPath() << "; download it there or set CUVIL_MODEL";
    const auto file = gguf::File::Open(ModelPath());
    ASSERT_TRUE(file.ok()) << file.status();
    auto spec = gguf::ReadVocab(**file);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto made = text::Tokenizer::Create(*std::move(spec));
    ASSERT_TRUE(made.ok()) << made.status();
    tokenizer_ = *made;
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  void SetUp() override { ASSERT_NE(tokenizer_, nullptr); }

  static std::shared_ptr<const text::Tokenizer> tokenizer_;
};
std::shared_ptr<const text::Tokenizer> ModelTokenizer::tokenizer_;

TEST_F(ModelTokenizer, AllGoldenStringsMatch) {
  const std::vector<Json> lines = ReadLines("tokenize.jsonl");
  ASSERT_EQ(lines.size(), kStrings);
  for (const Json& line : lines) {
    const auto ids = tokenizer_->Encode(line["text"].get<std::string>(),
                                        {.parse_special = line["parse_special"].get<bool>()});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, line["ids"].get<std::vector<int32_t>>()) << line["id"];
  }
}

// Renders, keeps the parts apart, and still gets the ids of the whole prompt.
TEST_F(ModelTokenizer, PromptsRenderAndEncodeAsTheGoldens) {
  const std::vector<Json> lines = ReadLines("prompts.jsonl");
  ASSERT_EQ(lines.size(), kPrompts);
  const auto chat = text::ChatTemplate::Parse(tokenizer_->spec().chat_template);
  ASSERT_TRUE(chat.ok()) << chat.status();
  for (const Json& line : lines) {
    SCOPED_TRACE(line["id"].get<std::string>());
    const std::string prompt = line["prompt"].get<std::string>();
    const auto want = line["prompt_ids"].get<std::vector<int32_t>>();
    const auto ids =
        tokenizer_->Encode(prompt, {.parse_special = line["parse_special"].get<bool>()});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, want);
    if (!line.contains("messages")) continue;
    text::ChatTemplate::Inputs inputs;
    for (const Json& message : line["messages"]) {
      inputs.messages.push_back(
          {message["role"].get<std::string>(), message["content"].get<std::string>()});
    }
    const auto segments = chat->RenderSegments(inputs);
    ASSERT_TRUE(segments.ok()) << segments.status();
    std::string rendered;
    for (const text::Segment& segment : *segments) rendered += segment.text;
    EXPECT_EQ(rendered, prompt);
    const auto from_segments = tokenizer_->EncodeSegments(*segments, {});
    ASSERT_TRUE(from_segments.ok()) << from_segments.status();
    EXPECT_EQ(*from_segments, want);
  }
}

}  // namespace
}  // namespace cuvil
