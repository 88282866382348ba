#include "server/engine/answer.h"

#include <filesystem>

#include "compiler/import/gguf/file.h"
#include "compiler/import/gguf/vocab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/test_model.h"

namespace cuvil::server {
namespace {

using ::testing::ElementsAre;

class AnswerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = WriteTestModel("answer_test");
    const auto file = gguf::File::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    auto vocab = gguf::ReadVocab(**file);
    ASSERT_TRUE(vocab.ok()) << vocab.status();
    auto tokenizer = text::Tokenizer::Create(*std::move(vocab));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    std::filesystem::remove(path);
  }
  static void TearDownTestSuite() { tokenizer_ = nullptr; }

  static inline std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::shared_ptr<Collector> sink_ = std::make_shared<Collector>();
};

// A step that fails after some of its rows have run is run again, and told of them twice.
TEST_F(AnswerTest, PromptLogprobsOfAStepThatIsRunAgainCountOnce) {
  Answer answer(1, {.prompt = {7, 8, 9}, .prompt_logprobs = 0}, sink_, tokenizer_, 0);
  for (const int position : {0, 1, 0, 1, 2}) {
    answer.AddPromptLogprobs(position, {.id = 7 + position});
    answer.Flush();
  }
  const std::vector<engine::SampledToken> list = sink_->result().prompt_logprobs;
  ASSERT_EQ(list.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(list[i].id, 7 + i);
  EXPECT_EQ(sink_->result().prompt_logprob_events, 1);
}

TEST_F(AnswerTest, RowsOfAStepThatIsRunAgainArePooledOnce) {
  Answer answer(1, {.task = Task::kEmbed, .prompt = {7, 8}}, sink_, tokenizer_, 0);
  const std::vector<float> first = {1, 3}, second = {3, 9};
  answer.Pool(0, first);
  answer.Pool(0, first);
  answer.Pool(1, second);
  answer.End(0, {.reason = scheduler::EndReason::kLength}, 0);
  answer.Flush();
  EXPECT_THAT(sink_->result().last.embedding, ElementsAre(2, 6));
}

}  // namespace
}  // namespace cuvil::server
