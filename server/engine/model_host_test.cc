// The serving engine on a tiny model: what comes out of a batch is what a single run gives, every
// request ends once, and pages come back.
#include "server/engine/model_host.h"

#include <cmath>
#include <filesystem>

#include "engine/generate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/param.h"
#include "server/api/retry.h"
#include "server/engine/test_model.h"

namespace cuvil::server {
namespace {

using ::testing::HasSubstr;

class ModelHostTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = WriteTestModel("model_host_test");
    auto model = engine::Model::Load(path, {.threads = 2});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ((*model)->weights().Wait(), absl::OkStatus());
    model_ = *model;
    std::filesystem::remove(path);
  }
  static void TearDownTestSuite() { model_ = nullptr; }

  static std::unique_ptr<ModelHost> Start(HostOptions options = {}) {
    options.name = "tiny";
    if (options.kv_tokens == 0) options.kv_tokens = 4096;
    auto host = ModelHost::Start(model_, options, nullptr);
    CUVIL_CHECK(host.ok(), host.status().message());
    return *std::move(host);
  }
  static GenerateRequest Request(std::vector<int32_t> prompt, int64_t max_tokens) {
    GenerateRequest r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    r.sampling.temperature = 0;
    return r;
  }
  static std::vector<int32_t> Alone(const GenerateRequest& r) {
    auto engine = engine::Engine::Create(model_);
    auto sampler = engine::Sampler::Create(*model_);
    CUVIL_CHECK(engine.ok() && sampler.ok(), "an engine");
    engine::Request one{.prompt = r.prompt,
                        .max_tokens = r.max_tokens,
                        .sampling = r.sampling,
                        .ignore_eos = r.ignore_eos};
    auto result = engine::Generate(**engine, **sampler, one);
    CUVIL_CHECK(result.ok(), result.status().message());
    return result->tokens;
  }
  static Collector::Result Run(ModelHost& host, GenerateRequest r) {
    auto sink = std::make_shared<Collector>();
    const absl::Status status = host.Submit(next_++, std::move(r), sink);
    CUVIL_CHECK(status.ok(), status.message());
    sink->Wait();
    return sink->result();
  }
  static void ExpectNoPagesInUse(const ModelHost& host) {
    while (!host.idle()) std::this_thread::yield();
    EXPECT_EQ(host.load().pages_used, 0);
    EXPECT_EQ(host.load().running, 0);
    EXPECT_EQ(host.load().waiting, 0);
  }

  static inline std::shared_ptr<const engine::Model> model_;
  static inline uint64_t next_ = 1;
};

TEST_F(ModelHostTest, ABatchAnswersAsSingleRunsDo) {
  const auto host = Start();
  std::vector<GenerateRequest> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 12; ++i) {
    // Some share a prefix of more than a page.
    std::vector<int32_t> prompt = i % 3 == 0 ? TestTokens(70, 1) : TestTokens(5 + 40 * i, i);
    for (const int32_t t : TestTokens(3, 100 + i)) prompt.push_back(t);
    requests.push_back(Request(prompt, 10 + i));
    if (i % 2 == 1) {
      requests.back().sampling.temperature = 1;
      requests.back().sampling.seed = static_cast<uint64_t>(i);
      requests.back().sampling.repetition_penalty = 1.1;
    }
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_EQ(host->Submit(next_++, requests.back(), sinks.back()), absl::OkStatus());
  }
  for (int i = 0; i < 12; ++i) {
    sinks[i]->Wait();
    const Collector::Result r = sinks[i]->result();
    EXPECT_EQ(r.last.status, absl::OkStatus());
    ASSERT_EQ(r.tokens.size(), 1u);
    EXPECT_EQ(r.tokens[0], Alone(requests[i])) << i;
    EXPECT_EQ(r.reasons[0], FinishReason::kLength);
    EXPECT_EQ(r.last.usage.completion_tokens, 10 + i);
    EXPECT_EQ(r.ends, 1);
  }
  ExpectNoPagesInUse(*host);
  // The same prompt again finds its pages.
  EXPECT_GE(Run(*host, requests[11]).last.usage.cached_tokens, 416);
}

TEST_F(ModelHostTest, ChoicesDifferBySeedAndShareThePrompt) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(100, 5), 12);
  r.sampling.temperature = 1;
  r.sampling.seed = 42;
  r.choices = 3;
  const Collector::Result result = Run(*host, r);
  ASSERT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(result.tokens[0], Alone(r));
  EXPECT_NE(result.tokens[1], result.tokens[0]);
  EXPECT_NE(result.tokens[2], result.tokens[1]);
  EXPECT_EQ(result.last.usage.completion_tokens, 36);
  r.best_of = 5;
  const Collector::Result best = Run(*host, r);
  EXPECT_EQ(best.tokens.size(), 5u);
  EXPECT_EQ(best.last.best.size(), 3u);
  ExpectNoPagesInUse(*host);
}

TEST_F(ModelHostTest, AnAbortedRequestEndsOnceAndGivesItsPagesBack) {
  const auto host = Start();
  auto sink = std::make_shared<Collector>();
  const uint64_t handle = next_++;
  ASSERT_EQ(host->Submit(handle, Request(TestTokens(200, 7), -1), sink), absl::OkStatus());
  sink->WaitForTokens(3);
  host->Abort(handle);
  host->Abort(handle);
  host->Abort(handle + 1000);
  sink->Wait();
  EXPECT_TRUE(absl::IsCancelled(sink->result().last.status));
  EXPECT_EQ(sink->result().ends, 1);
  ExpectNoPagesInUse(*host);
}

TEST_F(ModelHostTest, StoppingAnswersWhatIsLeft) {
  auto host = Start();
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_EQ(host->Submit(next_++, Request(TestTokens(300, i), -1), sinks.back()),
              absl::OkStatus());
  }
  sinks[0]->WaitForTokens(1);
  host.reset();
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_TRUE(absl::IsUnavailable(sink->result().last.status));
    EXPECT_EQ(sink->result().ends, 1);
  }
}

TEST_F(ModelHostTest, RefusalsNameTheirField) {
  const auto host = Start({.sequences_max = 4});
  const auto param = [&](auto change) {
    GenerateRequest r = Request({1, 2}, 8);
    change(r);
    auto sink = std::make_shared<Collector>();
    const absl::Status status = host->Submit(next_++, std::move(r), sink);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return ParamOf(status);
  };
  EXPECT_EQ(param([](GenerateRequest& r) { r.choices = 5; }), "n");
  EXPECT_EQ(param([](GenerateRequest& r) { r.best_of = 5; }), "best_of");
  EXPECT_EQ(param([](GenerateRequest& r) { r.stop_tokens = {kTestVocab}; }), "stop_token_ids");
  EXPECT_EQ(param([](GenerateRequest& r) { r.trim = TrimOptions{8, 8}; }), "max_kv_len");
  EXPECT_EQ(param([](GenerateRequest& r) { r.min_tokens = 9; }), "min_tokens");
  EXPECT_EQ(param([](GenerateRequest& r) {
              r.max_tokens = -1;
              r.min_tokens = kTestContext - 1;
            }),
            "min_tokens");
}

TEST_F(ModelHostTest, MoreSequencesThanRowsNamesTheOption) {
  const auto host =
      ModelHost::Start(model_, {.name = "tiny", .kv_tokens = 4096, .sequences_max = 600}, nullptr);
  ASSERT_TRUE(absl::IsInvalidArgument(host.status())) << host.status();
  EXPECT_THAT(std::string(host.status().message()), HasSubstr("max_running is 600"));
}

// More pages than the model has: known only to the scheduler, told as the request's end.
TEST_F(ModelHostTest, MoreTokensThanPagesNamesMaxTokens) {
  const auto host = Start({.kv_tokens = 128});
  const absl::Status status = Run(*host, Request(TestTokens(20, 3), 900)).last.status;
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(ParamOf(status), "max_tokens");
}

TEST_F(ModelHostTest, APromptAloneMayFillTheContext) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(kTestContext, 5), 0);
  r.prompt_logprobs = 1;
  r.choices = 2;
  for (int run = 0; run < 2; ++run) {  // the second finds the first one's pages
    const Collector::Result result = Run(*host, r);
    EXPECT_EQ(result.last.status, absl::OkStatus());
    EXPECT_EQ(result.prompt_logprobs.size(), r.prompt.size());
    EXPECT_EQ(result.last.usage.completion_tokens, 0);
    ASSERT_EQ(result.reasons.size(), 2u);
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(result.reasons[k], FinishReason::kLength);
      EXPECT_TRUE(result.tokens[k].empty());
      EXPECT_EQ(result.text[k], "");
    }
  }
  r.prompt_logprobs = -1;
  EXPECT_EQ(Run(*host, r).last.usage.completion_tokens, 0);
  ExpectNoPagesInUse(*host);
}

TEST_F(ModelHostTest, RefusalsAreSentences) {
  const auto host = Start();
  auto refused = [&](GenerateRequest r) {
    auto sink = std::make_shared<Collector>();
    const absl::Status s = host->Submit(next_++, std::move(r), sink);
    EXPECT_FALSE(sink->WaitFor(0));
    return s;
  };
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Request({}, 1))));
  EXPECT_THAT(std::string(refused(Request(TestTokens(kTestContext, 1), 1)).message()),
              HasSubstr("context of 1024"));
  EXPECT_THAT(std::string(refused(Request({1, kTestVocab}, 1)).message()),
              HasSubstr("token 272 is outside"));
  EXPECT_THAT(std::string(refused(Request({1, -1}, 1)).message()), HasSubstr("token -1"));
  GenerateRequest r = Request({1, 2}, 1);
  r.trim = TrimOptions{.max_kv_len = 8, .sinks = 8};
  EXPECT_TRUE(absl::IsInvalidArgument(refused(r)));
  r = Request({1, 2}, 1);
  r.sampling.top_p = std::nan("");
  EXPECT_TRUE(absl::IsInvalidArgument(refused(r)));
  host->BeginDrain();
  EXPECT_TRUE(absl::IsUnavailable(refused(Request({1, 2}, 1))));
}

// It was told to try again later, for ever.
TEST_F(ModelHostTest, AnIdleHostTakesWhatIsLargerThanItsQueue) {
  const auto host = Start({.queue_requests_max = 4, .queue_tokens_max = 100});
  GenerateRequest r = Request(TestTokens(200, 1), 3);
  r.choices = 8;
  const Collector::Result result = Run(*host, r);
  EXPECT_EQ(result.last.status, absl::OkStatus());
  EXPECT_EQ(result.tokens.size(), 8u);
}

// What had left the inbox and was not in the published load yet counted as nothing: too many were
// accepted, and failed in the scheduler's queue.
TEST_F(ModelHostTest, WhatTheQueueAcceptedItDoesNotRefuseLater) {
  const auto host = Start({.sequences_max = 2, .queue_requests_max = 4});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 2000 && sinks.size() < 300; ++i) {
    auto sink = std::make_shared<Collector>();
    const absl::Status status = host->Submit(next_++, Request({1, 2}, 1), sink);
    if (status.ok()) {
      sinks.push_back(sink);
    } else {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      sinks.back()->Wait();
    }
  }
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_EQ(sink->result().last.status, absl::OkStatus());
  }
}

TEST_F(ModelHostTest, WhatWouldBeLateIsRefusedWhileOthersWait) {
  const auto host = Start({.sequences_max = 1});
  std::vector<std::shared_ptr<Collector>> sinks;
  const auto submit = [&](int64_t tokens, int64_t deadline_ms) {
    GenerateRequest r = Request(TestTokens(20, 1 + static_cast<int>(sinks.size())), tokens);
    r.deadline_ms = deadline_ms;
    sinks.push_back(std::make_shared<Collector>());
    return host->Submit(next_++, std::move(r), sinks.back());
  };
  // These teach what waiting and staying cost.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(submit(40, 0), absl::OkStatus());
  for (const auto& sink : sinks) sink->Wait();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(submit(400, 0), absl::OkStatus());
  const absl::Status late = submit(400, 1);
  EXPECT_EQ(late.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(late.message()), HasSubstr("too long for this request's deadline"));
  EXPECT_GE(RetryAfterS(late), 1);
  EXPECT_EQ(host->CheckRoom(1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(host->CheckRoom(3'600'000), absl::OkStatus());
  EXPECT_EQ(host->CheckRoom(0), absl::OkStatus());
  sinks.pop_back();
  EXPECT_EQ(submit(1, 3'600'000), absl::OkStatus());
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_EQ(sink->result().last.status, absl::OkStatus());
  }
}

TEST_F(ModelHostTest, PromptLogprobsAreThoseOfTheModel) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(150, 9), 2);  // more rows than are scored at once
  r.prompt_logprobs = 3;
  const Collector::Result result = Run(*host, r);
  EXPECT_EQ(result.tokens[0], Alone(r));
  ASSERT_EQ(result.prompt_logprobs.size(), r.prompt.size());
  auto engine = engine::Engine::Create(model_);
  ASSERT_TRUE(engine.ok());
  const engine::SequenceId sequence = *(*engine)->NewSequence();
  for (size_t i = 0; i < r.prompt.size(); ++i) {
    const engine::SampledToken& got = result.prompt_logprobs[i];
    EXPECT_EQ(got.id, r.prompt[i]);
    if (i > 0) {
      double sum = 0;
      for (const float x : (*engine)->logits(0)) sum += std::exp(double{x});
      // The sum is over f32 logits in double on both sides.
      EXPECT_NEAR(got.logprob, (*engine)->logits(0)[r.prompt[i]] - std::log(sum), 1e-9);
      ASSERT_EQ(got.top.size(), 3u);
      EXPECT_GE(got.top[0].second, got.top[1].second);
    }
    const engine::Chunk chunk{sequence, {&r.prompt[i], 1}, engine::Want::kLast};
    ASSERT_EQ((*engine)->Step({&chunk, 1}), absl::OkStatus());
  }
}

// The only row speaks of the answer: nothing was scored, and the prompt went unlisted.
TEST_F(ModelHostTest, AOneTokenPromptIsListedWithItsLogprobsOnce) {
  const auto host = Start();
  GenerateRequest r = Request({7}, 3);
  r.prompt_logprobs = 1;
  r.choices = 2;
  const Collector::Result result = Run(*host, r);
  ASSERT_EQ(result.prompt_logprobs.size(), 1u);
  EXPECT_EQ(result.prompt_logprobs[0].id, 7);
  EXPECT_EQ(result.tokens[0], Alone(r));
}

// Each step handed on what it had: doors took the last part for the whole list.
TEST_F(ModelHostTest, PromptLogprobsOfSeveralStepsComeAsOneList) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(700, 9), 2);  // more rows than a step has
  r.prompt_logprobs = 1;
  const Collector::Result alone = Run(*host, r);
  EXPECT_EQ(alone.prompt_logprob_events, 1);
  ASSERT_EQ(alone.prompt_logprobs.size(), r.prompt.size());
  // While others get tokens a prompt is fed in smaller parts.
  const auto busy = Start({.itl_target_us = 1});
  auto other = std::make_shared<Collector>();
  const uint64_t handle = next_++;
  ASSERT_EQ(busy->Submit(handle, Request(TestTokens(20, 3), -1), other), absl::OkStatus());
  other->WaitForTokens(1);
  const Collector::Result beside = Run(*busy, r);
  busy->Abort(handle);
  EXPECT_EQ(beside.prompt_logprob_events, 1);
  ASSERT_EQ(beside.prompt_logprobs.size(), r.prompt.size());
  for (size_t i = 0; i < r.prompt.size(); ++i) {
    EXPECT_EQ(beside.prompt_logprobs[i].id, r.prompt[i]);
    EXPECT_EQ(beside.prompt_logprobs[i].logprob, alone.prompt_logprobs[i].logprob) << i;
  }
}

TEST_F(ModelHostTest, AnEmbeddingDoesNotDependOnItsNeighbours) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(90, 11), 0);
  r.task = Task::kEmbed;
  const std::vector<float> alone = Run(*host, r).last.embedding;
  ASSERT_EQ(static_cast<int64_t>(alone.size()), model_->config().n_embd);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 6; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_EQ(
        host->Submit(next_++, i == 3 ? r : Request(TestTokens(50 * i + 1, i), 5), sinks.back()),
        absl::OkStatus());
  }
  for (const auto& sink : sinks) sink->Wait();
  EXPECT_EQ(sinks[3]->result().last.embedding, alone);
  EXPECT_EQ(sinks[3]->result().last.usage.completion_tokens, 0);
}

TEST_F(ModelHostTest, TrimmedAnswersDoNotDependOnTheBatchAndHoldFewPages) {
  const auto host = Start({.kv_tokens = 2048});
  GenerateRequest r = Request(TestTokens(300, 13), 200);
  const std::vector<int32_t> whole = Run(*host, r).tokens[0];
  r.trim = TrimOptions{.max_kv_len = 128, .sinks = 4};
  const Collector::Result alone = Run(*host, r);
  EXPECT_NE(alone.tokens[0], whole);  // the seed shows the difference
  EXPECT_GT(alone.last.usage.trimmed_tokens, 300);
  // Neither the batch nor prefix pages change it.
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_EQ(host->Submit(next_++, i == 4 ? Request(TestTokens(600, 1), 5) : r, sinks.back()),
              absl::OkStatus());
  }
  for (int i = 0; i < 4; ++i) {
    sinks[i]->Wait();
    EXPECT_EQ(sinks[i]->result().tokens[0], alone.tokens[0]);
  }
  // A budget that is never reached changes nothing.
  r.trim = TrimOptions{.max_kv_len = 1000, .sinks = 4};
  EXPECT_EQ(Run(*host, r).tokens[0], whole);
  ExpectNoPagesInUse(*host);
}

TEST_F(ModelHostTest, PreemptedAnswersAreTheSame) {
  // Room for about two of the eight.
  const auto host = Start({.kv_tokens = 1088});
  std::vector<GenerateRequest> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(Request(TestTokens(100, i), 300));
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_EQ(host->Submit(next_++, requests.back(), sinks.back()), absl::OkStatus());
  }
  int64_t preemptions = 0;
  for (int i = 0; i < 8; ++i) {
    sinks[i]->Wait();
    EXPECT_EQ(sinks[i]->result().last.status, absl::OkStatus());
    EXPECT_EQ(sinks[i]->result().tokens[0], Alone(requests[i])) << i;
    preemptions += sinks[i]->result().last.usage.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  ExpectNoPagesInUse(*host);
}

TEST_F(ModelHostTest, StopStringsAndMinimumTokens) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(20, 17), 60);
  const Collector::Result plain = Run(*host, r);
  ASSERT_GE(plain.text[0].size(), 4u);
  // A stop string from the middle of the text ends it there.
  const std::string stop = plain.text[0].substr(plain.text[0].size() / 2, 2);
  r.stop = {stop};
  const Collector::Result stopped = Run(*host, r);
  EXPECT_EQ(stopped.reasons[0], FinishReason::kStop);
  EXPECT_EQ(stopped.text[0], plain.text[0].substr(0, plain.text[0].find(stop)));
  r.include_stop = true;
  EXPECT_EQ(Run(*host, r).text[0], stopped.text[0] + stop);
  // The third token as a stop token: it ends the answer, unless a minimum forbids it.
  r = Request(TestTokens(20, 17), 10);
  r.stop_tokens = {plain.tokens[0][2]};
  EXPECT_LE(Run(*host, r).tokens[0].size(), 3u);
  r.min_tokens = 10;
  EXPECT_EQ(Run(*host, r).tokens[0].size(), 10u);
}

// Only end tokens waited for the minimum.
TEST_F(ModelHostTest, AStopStringDoesNotCountBeforeTheMinimum) {
  const auto host = Start();
  GenerateRequest r = Request(TestTokens(20, 17), 60);
  const Collector::Result plain = Run(*host, r);
  r.stop = {plain.text[0].substr(0, 2), plain.text[0].substr(plain.text[0].size() / 2, 2)};
  EXPECT_LT(Run(*host, r).tokens[0].size(), 60u);
  r.min_tokens = 60;
  const Collector::Result longest = Run(*host, r);
  EXPECT_EQ(longest.tokens[0], plain.tokens[0]);
  EXPECT_EQ(longest.text[0], plain.text[0]);
  EXPECT_EQ(longest.reasons[0], FinishReason::kLength);
}

}  // namespace
}  // namespace cuvil::server
