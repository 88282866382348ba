// Trimming in the serving engine, for each arithmetic and so each type that keys and values are
// stored in: neither dropped pages, found prefixes, preemption nor the size of prompt chunks change
// an answer, and a sequence holds no more pages than the plan says.
#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/model_host.h"
#include "server/engine/test_model.h"

namespace cuvil::server {
namespace {

using ::testing::HasSubstr;

constexpr TrimOptions kTrim = {.max_kv_len = 128, .sinks = 4};
constexpr int kPage = 32;

using Tokens = std::vector<int32_t>;

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What the steps were like.
class Steps : public EngineObserver {
 public:
  void OnStep(const std::string& model, const StepReport& step, const EngineTotals&) override {
    std::lock_guard lock(mutex_);
    if (step.prefill_rows == 0) return;
    ++prefills_;
  }
  int64_t prefills() const {
    std::lock_guard lock(mutex_);
    return prefills_;
  }

 private:
  mutable std::mutex mutex_;
  int64_t prefills_ = 0;
};

class TrimHostTest : public ::testing::TestWithParam<plan::Numerics> {
 protected:
  static std::shared_ptr<const engine::Model> Load(const std::string& source, int64_t context) {
    const std::string name = absl::StrCat(source, "_", Sv(plan::NumericsName(GetParam())));
    if (const auto it = models_.find(name); it != models_.end()) return it->second;
    const std::string path = WriteTestModel("trim_host_test_" + name, source, context);
    auto model = engine::Model::Load(path, {.numerics = GetParam(), .threads = 2});
    CUVIL_CHECK(model.ok(), model.status().message());
    CUVIL_CHECK((*model)->weights().Wait().ok(), "weights");
    std::filesystem::remove(path);
    return models_[name] = *model;
  }
  // Their threads end before the process does.
  static void TearDownTestSuite() { models_.clear(); }
  void SetUp() override { model_ = Load("llama-q4_1", kTestContext); }

  std::unique_ptr<ModelHost> Start(HostOptions options = {}, EngineObserver* observer = nullptr) {
    options.name = "tiny";
    if (options.kv_tokens == 0) options.kv_tokens = 4096;
    auto host = ModelHost::Start(model_, options, observer);
    CUVIL_CHECK(host.ok(), host.status().message());
    return *std::move(host);
  }
  static GenerateRequest Request(Tokens prompt, int64_t max_tokens, TrimOptions trim = kTrim) {
    GenerateRequest r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    r.sampling.temperature = 0;
    r.trim = trim;
    return r;
  }
  // One row a step, every page kept: what a row may not see is hidden from it by its window alone.
  Tokens WithAllPages(const GenerateRequest& r) const {
    auto runner = engine::StepRunner::Create(model_, {.pages = kTestContext / kPage});
    CUVIL_CHECK(runner.ok(), runner.status().message());
    Tokens pages, tokens = r.prompt;
    for (int i = 0; i < kTestContext / kPage; ++i) pages.push_back(i);
    const size_t length = r.prompt.size() + static_cast<size_t>(r.max_tokens);
    for (size_t i = 0; tokens.size() < length; ++i) {
      engine::StepRows row{.tokens = {&tokens[i], 1}, .begin = static_cast<int64_t>(i)};
      row.pages = absl::MakeConstSpan(pages).first(i / kPage + 1);
      if (r.trim->max_kv_len > 0) {
        row.window = r.trim->max_kv_len - r.trim->sinks;
        row.sinks = r.trim->sinks;
      }
      CUVIL_CHECK((*runner)->Step({&row, 1}).ok(), "a step");
      if (i + 1 < tokens.size()) continue;
      const absl::Span<const float> logits = (*runner)->logits(0);
      const auto largest = std::max_element(logits.begin(), logits.end());
      tokens.push_back(static_cast<int32_t>(largest - logits.begin()));
    }
    return {tokens.begin() + static_cast<int64_t>(r.prompt.size()), tokens.end()};
  }
  static std::shared_ptr<Collector> Submit(ModelHost& host, const GenerateRequest& r) {
    auto sink = std::make_shared<Collector>();
    const absl::Status status = host.Submit(next_++, r, sink);
    CUVIL_CHECK(status.ok(), status.message());
    return sink;
  }
  static Collector::Result Result(const Collector& sink) {
    sink.Wait();
    EXPECT_EQ(sink.result().last.status, absl::OkStatus());
    return sink.result();
  }
  static Collector::Result Run(ModelHost& host, const GenerateRequest& r) {
    return Result(*Submit(host, r));
  }

  std::shared_ptr<const engine::Model> model_;
  static inline std::map<std::string, std::shared_ptr<const engine::Model>> models_;
  static inline uint64_t next_ = 1;
};

TEST_P(TrimHostTest, PagesAreOfTheTypeThatDocsName) {
  const int64_t bytes = GetParam() == plan::Numerics::kExact ? 4 : 2;
  const gguf::ModelConfig& c = model_->config();
  EXPECT_EQ(model_->program().states[0].page_tokens, kPage);
  EXPECT_EQ(model_->program().states[0].page_bytes,
            kPage * c.n_layer * c.n_head_kv * c.head_dim * 2 * bytes);
}

TEST_P(TrimHostTest, DroppedPagesChangeNothing) {
  const auto host = Start();
  const GenerateRequest r = Request(TestTokens(300, 13), 100);
  const Collector::Result got = Run(*host, r);
  EXPECT_EQ(got.tokens[0], WithAllPages(r));
  GenerateRequest untrimmed = r;
  untrimmed.trim = TrimOptions();
  EXPECT_NE(got.tokens[0], WithAllPages(untrimmed));  // the seed shows the difference
  // 399 positions were fed: the next query sees from 399 - 123 on, so pages 1 to 7 are gone.
  EXPECT_EQ(got.last.usage.trimmed_tokens, 7 * kPage);
}

TEST_P(TrimHostTest, ChunksOfThePromptChangeNothing) {
  const GenerateRequest r = Request(TestTokens(900, 21), 20);
  const Tokens want = WithAllPages(r);
  Steps alone;
  EXPECT_EQ(Run(*Start({}, &alone), r).tokens[0], want);
  EXPECT_EQ(alone.prefills(), 2);  // 512 and 388 rows
  // Beside a decoding sequence chunks are cut by time, so their sizes differ from run to run, and
  // the answer must not. How many there are is the machine's business.
  Steps beside;
  const auto host = Start({.itl_target_us = 1}, &beside);
  const auto neighbour = Submit(*host, Request(TestTokens(10, 1), 800));
  neighbour->WaitForTokens(1);
  EXPECT_EQ(Run(*host, r).tokens[0], want);
  EXPECT_GE(beside.prefills(), 2);
  EXPECT_GT(Result(*neighbour).last.usage.trimmed_tokens, 0);
}

TEST_P(TrimHostTest, AnUntrimmedPrefixServesUpToTheBudget) {
  const auto host = Start();
  const Tokens prefix = TestTokens(300, 31);
  Run(*host, Request(prefix, 1, TrimOptions()));
  const GenerateRequest r = Request(Joined(prefix, TestTokens(3, 32)), 40);
  const Collector::Result got = Run(*host, r);
  EXPECT_EQ(got.last.usage.cached_tokens, kTrim.max_kv_len);
  EXPECT_EQ(got.tokens[0], WithAllPages(r));
  // The other way round: what the trimmed one dropped was below its budget, and is still there.
  GenerateRequest whole = r;
  whole.prompt.back() ^= 1;
  whole.trim = TrimOptions();
  EXPECT_GE(Run(*host, whole).last.usage.cached_tokens, kTrim.max_kv_len);
  EXPECT_EQ(Run(*host, whole).tokens[0], WithAllPages(whole));
}

TEST_P(TrimHostTest, ATrimmedPrefixServesItsOwnPolicyOnly) {
  const auto host = Start();
  const GenerateRequest first = Request(TestTokens(300, 41), 85);
  const Collector::Result got = Run(*host, first);
  // The conversation goes on where it ended: 384 of its positions are full pages.
  GenerateRequest next = first;
  next.prompt = Joined(Joined(first.prompt, got.tokens[0]), TestTokens(5, 42));
  next.max_tokens = 40;
  const Tokens want = WithAllPages(next);
  // Another policy finds what is below both budgets; none, that and what the other added below its.
  for (const auto& [other, found] : {std::pair(TrimOptions{.max_kv_len = 160, .sinks = 4}, 128),
                                     std::pair(TrimOptions(), 160)}) {
    GenerateRequest r = next;
    r.trim = other;
    const Collector::Result answer = Run(*host, r);
    EXPECT_EQ(answer.last.usage.cached_tokens, found);
    EXPECT_EQ(answer.tokens[0], WithAllPages(r));
  }
  const Collector::Result answer = Run(*host, next);
  EXPECT_EQ(answer.last.usage.cached_tokens, 384);
  EXPECT_EQ(answer.tokens[0], want);
}

TEST_P(TrimHostTest, PreemptionChangesNothing) {
  // Each grows to 9 pages and keeps them, of 34 for eight. Some share a prefix.
  const auto host = Start({.kv_tokens = 1088});
  const TrimOptions trim = {.max_kv_len = 256, .sinks = 40};
  std::vector<GenerateRequest> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 8; ++i) {
    const Tokens prompt = i % 2 == 0 ? TestTokens(100, 51) : TestTokens(100, i);
    requests.push_back(Request(Joined(prompt, TestTokens(3, i)), 300, trim));
    sinks.push_back(Submit(*host, requests.back()));
  }
  int64_t preemptions = 0, preempted_and_trimmed = 0;
  for (int i = 0; i < 8; ++i) {
    const Collector::Result got = Result(*sinks[i]);
    EXPECT_EQ(got.tokens[0], WithAllPages(requests[i])) << i;
    EXPECT_GT(got.last.usage.trimmed_tokens, 0);
    preemptions += got.last.usage.preemptions;
    preempted_and_trimmed += got.last.usage.preemptions > 0;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(preempted_and_trimmed, 0);
}

TEST_P(TrimHostTest, APromptOf18000TokensFitsTheFewPagesOfThePlan) {
  constexpr int64_t kPrompt = 18000, kNew = 40;
  model_ = Load("llama-q4_k", 20480);
  const TrimOptions trim = {.max_kv_len = 2048, .sinks = 4 * kPage};
  const kvcache::TrimPolicy policy{trim.max_kv_len, trim.sinks};
  const SequencePlan plan = PlanMemory(model_->program(), {.context = 20480,
                                                           .vocab_size = kTestVocab,
                                                           .trim = policy,
                                                           .sequence_tokens = kPrompt + kNew - 1})
                                .sequence;
  EXPECT_EQ(plan.pages_untrimmed, 564);
  // Sinks, 1,919 + 512 positions, and one for where a step begins.
  EXPECT_EQ(plan.pages, 4 + 76 + 1);
  const GenerateRequest r = Request(TestTokens(kPrompt, 61), kNew, trim);
  const auto host = Start({.kv_tokens = plan.pages * kPage});
  EXPECT_EQ(host->load().pages_total, plan.pages);
  const Collector::Result got = Run(*host, r);
  EXPECT_EQ(got.tokens[0].size(), static_cast<size_t>(kNew));
  int64_t dead = 0;
  for (int64_t p = 0; p < plan.pages_untrimmed; ++p)
    dead += policy.PageIsDead(p, kPage, plan.tokens);
  EXPECT_EQ(got.last.usage.trimmed_tokens, dead * kPage);
  // One page fewer, or no trimming, and it is refused.
  const auto smaller = Start({.kv_tokens = (plan.pages - 1) * kPage});
  auto sink = std::make_shared<Collector>();
  ASSERT_EQ(smaller->Submit(next_++, r, sink), absl::OkStatus());
  sink->Wait();
  EXPECT_THAT(std::string(sink->result().last.status.message()), HasSubstr("may need 81 pages"));
  GenerateRequest untrimmed = r;
  untrimmed.trim = TrimOptions();
  sink = std::make_shared<Collector>();
  ASSERT_EQ(host->Submit(next_++, untrimmed, sink), absl::OkStatus());
  sink->Wait();
  EXPECT_THAT(std::string(sink->result().last.status.message()), HasSubstr("may need 564 pages"));
}

TEST_P(TrimHostTest, AHostPolicyThatNoRequestCouldUseIsRefusedAtItsStart) {
  const auto host = ModelHost::Start(
      model_, {.name = "tiny", .kv_tokens = 4096, .trim = {.max_kv_len = 30, .sinks = 4}}, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(host.status()));
  EXPECT_THAT(std::string(host.status().message()), HasSubstr("max_kv_len 30"));
}

INSTANTIATE_TEST_SUITE_P(Numerics, TrimHostTest,
                         ::testing::Values(plan::Numerics::kExact, plan::Numerics::kFast,
                                           plan::Numerics::kDeterministic),
                         [](const auto& info) {
                           return std::string(plan::NumericsName(info.param));
                         });

}  // namespace
}  // namespace cuvil::server
