// Generation on tiny models, whose greedy continuations are recorded beside them in
// tests/data/gguf.
#include "engine/generate.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "compiler/driver/emit_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::engine {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string DataPath(const std::string& name) {
  const char* source = std::getenv("CUVIL_SOURCE_DIR");
  return absl::StrCat(source == nullptr ? "." : source, "/tests/data/gguf/", name);
}

struct Loaded {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Sampler> sampler;
  std::vector<int32_t> prompt, greedy;  // recorded
};

Loaded Load(const std::string& name) {
  Loaded l;
  auto model =
      Model::Load(DataPath(name + ".gguf"), {.numerics = plan::Numerics::kExact, .threads = 2});
  EXPECT_EQ(model.status(), absl::OkStatus());
  l.model = *std::move(model);
  l.engine = *Engine::Create(l.model, {.sequences_max = 2});
  l.sampler = *Sampler::Create(*l.model);
  std::ifstream file(DataPath(name + ".json"));
  std::stringstream text;
  text << file.rdbuf();
  const Json golden = *ParseJson(text.str());
  l.prompt = golden["tokens"].get<std::vector<int32_t>>();
  l.greedy = golden["greedy"].get<std::vector<int32_t>>();
  return l;
}

class GenerateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { llama_ = new Loaded(Load("llama-f32")); }
  static void TearDownTestSuite() { delete llama_; }
  void TearDown() override {
    EXPECT_EQ(engine().free_pages(), engine().pages()) << "a sequence was not freed";
  }

  Engine& engine() { return *llama_->engine; }
  const text::Tokenizer& tokenizer() { return *llama_->model->tokenizer(); }
  absl::StatusOr<Result> Run(const Request& request) {
    return Generate(engine(), *llama_->sampler, request);
  }
  Request Greedy(int64_t tokens) {
    return {.prompt = llama_->prompt,
            .max_tokens = tokens,
            .sampling = {.temperature = 0},
            .ignore_eos = true};
  }

  static Loaded* llama_;
};
Loaded* GenerateTest::llama_ = nullptr;

TEST_F(GenerateTest, GreedyContinuationIsTheRecordedOne) {
  const auto result = Run(Greedy(static_cast<int64_t>(llama_->greedy.size())));
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_THAT(result->tokens, ElementsAreArray(llama_->greedy));
  EXPECT_EQ(result->finish, FinishReason::kLength);
  EXPECT_GT(result->prefill_s, 0);
  EXPECT_GT(result->decode_s, 0);
  EXPECT_GT(result->first_token_at_s, 0);
  EXPECT_THAT(result->logprobs, IsEmpty());
}

TEST(Generate, GreedyContinuationOfAnotherArchitecture) {
  const Loaded l = Load("gemma3-f32");
  const Request request{.prompt = l.prompt,
                        .max_tokens = static_cast<int64_t>(l.greedy.size()),
                        .sampling = {.temperature = 0},
                        .ignore_eos = true};
  const auto result = Generate(*l.engine, *l.sampler, request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_THAT(result->tokens, ElementsAreArray(l.greedy));
}

TEST_F(GenerateTest, StreamedPiecesAddUpToTheText) {
  Request request = Greedy(40);
  request.sampling = {.temperature = 1, .seed = 5};
  std::string streamed;
  const auto result = Generate(engine(), *llama_->sampler, request, [&](const std::string& text) {
    EXPECT_FALSE(text.empty());
    streamed += text;
    return true;
  });
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(streamed, result->text);
  EXPECT_FALSE(streamed.empty());
}

TEST_F(GenerateTest, TheSeedDecides) {
  Request request = Greedy(24);
  request.sampling = {.temperature = 1, .seed = 7};
  const auto once = Run(request), again = Run(request);
  request.sampling.seed = 8;
  const auto other = Run(request);
  ASSERT_EQ(other.status(), absl::OkStatus());
  EXPECT_EQ(once->tokens, again->tokens);
  EXPECT_NE(once->tokens, other->tokens);
}

TEST_F(GenerateTest, StopStringEndsTheTextBeforeIt) {
  Request request = Greedy(40);
  request.sampling = {.temperature = 1, .seed = 5};
  const auto whole = Run(request);
  ASSERT_EQ(whole.status(), absl::OkStatus());
  ASSERT_GT(whole->text.size(), 8u);
  // Whole characters from the middle of the answer.
  size_t at = whole->text.size() / 2;
  const auto inside = [&](size_t i) { return (whole->text[i] & 0xc0) == 0x80; };
  while (inside(at)) ++at;
  size_t end = at + 1;
  while (end < whole->text.size() && inside(end)) ++end;
  request.stop = {whole->text.substr(at, end - at)};
  const auto result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->finish, FinishReason::kStop);
  EXPECT_EQ(result->text, whole->text.substr(0, whole->text.find(request.stop[0])));
  EXPECT_LT(result->tokens.size(), whole->tokens.size());
}

TEST_F(GenerateTest, EndTokenStopsUnlessIgnored) {
  int32_t end = 0;
  while (end < tokenizer().vocab_size() && !tokenizer().IsEndOfGeneration(end)) ++end;
  ASSERT_LT(end, tokenizer().vocab_size());
  Request request = Greedy(3);
  request.sampling.logit_bias = {{end, 100.0}};
  request.ignore_eos = false;
  auto result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_THAT(result->tokens, ElementsAreArray({end}));
  EXPECT_EQ(result->text, "");
  EXPECT_EQ(result->finish, FinishReason::kStop);
  request.ignore_eos = true;
  result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->tokens.size(), 3u);
  EXPECT_EQ(result->finish, FinishReason::kLength);
}

TEST_F(GenerateTest, ContextEndIsALength) {
  Request request = Greedy(1 << 20);
  request.prompt.assign(engine().context() - 3, llama_->prompt[0]);
  auto result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->tokens.size(), 3u);
  EXPECT_EQ(result->finish, FinishReason::kLength);
  request.prompt.assign(engine().context(), llama_->prompt[0]);
  result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_THAT(result->tokens, IsEmpty());
  request.prompt.push_back(0);
  result = Run(request);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("shorten it"));
}

TEST_F(GenerateTest, CancelKeepsWhatThereIs) {
  Request request = Greedy(100);
  request.sampling = {.temperature = 1, .seed = 5};
  std::atomic<bool> cancel = false;
  int pieces = 0;
  auto result = Generate(
      engine(), *llama_->sampler, request,
      [&](const std::string&) {
        cancel = ++pieces == 3;
        return true;
      },
      &cancel);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->finish, FinishReason::kCancelled);
  EXPECT_GE(result->tokens.size(), 3u);
  EXPECT_LT(result->tokens.size(), 100u);
  pieces = 0;
  result = Generate(engine(), *llama_->sampler, request, [&](const std::string&) {
    ++pieces;
    return false;
  });
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->finish, FinishReason::kCancelled);
  EXPECT_EQ(pieces, 1) << "nothing follows a refusal";
  cancel = true;
  result = Generate(engine(), *llama_->sampler, request, nullptr, &cancel);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_THAT(result->tokens, IsEmpty());
}

TEST_F(GenerateTest, LogprobsComeOnePerToken) {
  Request request = Greedy(6);
  request.sampling.logprobs = 4;
  const auto result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  ASSERT_EQ(result->logprobs.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const SampledToken& token = result->logprobs[i];
    EXPECT_EQ(token.id, result->tokens[i]);
    ASSERT_EQ(token.top.size(), 4u);
    EXPECT_EQ(token.top[0].first, token.id) << "greedy takes the likeliest";
    EXPECT_EQ(token.top[0].second, token.logprob);
    EXPECT_LE(token.top[1].second, token.top[0].second);
  }
}

TEST_F(GenerateTest, PenaltiesSeePromptAndAnswer) {
  Request request = Greedy(60);
  request.sampling.repetition_penalty = 100;
  request.sampling.presence_penalty = 2;
  const auto result = Run(request);
  ASSERT_EQ(result.status(), absl::OkStatus());
  const auto plain = Run(Greedy(60));
  const auto distinct = [](std::vector<int32_t> ids) {
    std::sort(ids.begin(), ids.end());
    return std::unique(ids.begin(), ids.end()) - ids.begin();
  };
  EXPECT_GT(distinct(result->tokens), distinct(plain->tokens));
}

TEST_F(GenerateTest, BadRequestsAreRefusedInOneSentence) {
  Request request = Greedy(4);
  request.prompt.clear();
  EXPECT_EQ(Run(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Greedy(-1);
  EXPECT_EQ(Run(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Greedy(4);
  request.sampling.top_p = 2;
  EXPECT_EQ(Run(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Greedy(4);
  request.prompt.push_back(static_cast<int32_t>(engine().vocab_size()));
  EXPECT_EQ(Run(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GenerateTest, WarmSamplerEmitsNothing) {
  const std::string dir = absl::StrCat(::testing::TempDir(), "/cuvil_sampler_cache_", getpid());
  const int64_t emitted = driver::KernelsEmitted();
  const auto cold = Sampler::Create(*llama_->model, dir);
  ASSERT_EQ(cold.status(), absl::OkStatus());
  EXPECT_EQ((*cold)->cache_note(), "");
  EXPECT_EQ((*cold)->kernels_emitted(), 1);
  EXPECT_EQ(driver::KernelsEmitted(), emitted + 1);
  const auto warm = Sampler::Create(*llama_->model, dir);
  ASSERT_EQ(warm.status(), absl::OkStatus());
  EXPECT_EQ((*warm)->kernels_emitted(), 0);
  EXPECT_EQ(driver::KernelsEmitted(), emitted + 1);
  EXPECT_THAT(Generate(engine(), **warm, Greedy(8))->tokens, ElementsAreArray(llama_->greedy));
  std::filesystem::remove_all(dir);
}

TEST(FinishName, NamesAll) {
  EXPECT_EQ(FinishName(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishName(FinishReason::kLength), "length");
  EXPECT_EQ(FinishName(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace cuvil::engine
