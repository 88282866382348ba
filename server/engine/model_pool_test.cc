// The life of models: load, sleep, wake, unload, and one budget for all.
#include "server/engine/model_pool.h"

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/test_model.h"

namespace cuvil::server {
namespace {

using ::testing::HasSubstr;

class ModelPoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    path_ = WriteTestModel("model_pool_test");
    cache_ = path_ + ".cache";
  }
  static void TearDownTestSuite() {
    std::filesystem::remove(path_);
    std::filesystem::remove_all(cache_);
  }

  std::unique_ptr<ModelPool> Create(PoolOptions options) {
    options.threads = 1;
    options.cache_dir = cache_;  // compiled once for all tests here
    auto pool = ModelPool::Create(std::move(options), nullptr);
    CUVIL_CHECK(pool.ok(), pool.status().message());
    (*pool)->Start();
    return *std::move(pool);
  }
  ModelSpec Spec(const std::string& name, bool preload = true) const {
    return {.name = name, .path = path_, .preload = preload, .kv_tokens = 2048};
  }
  static ModelState StateOf(const ModelPool& pool, const std::string& name) {
    for (const ModelInfo& m : pool.Models()) {
      if (m.name == name) return m.state;
    }
    return ModelState::kFailed;
  }
  static void WaitFor(const ModelPool& pool, const std::string& name, ModelState state) {
    for (int i = 0; i < 3000 && StateOf(pool, name) != state; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(StateName(StateOf(pool, name)), StateName(state));
  }
  static std::vector<int32_t> Answer(ModelPool& pool, const std::string& model) {
    GenerateRequest r;
    r.model = model;
    r.prompt = TestTokens(40, 3);
    r.max_tokens = 8;
    r.ignore_eos = true;
    r.sampling.temperature = 0;
    auto sink = std::make_shared<Collector>();
    auto handle = pool.Submit(std::move(r), sink);
    CUVIL_CHECK(handle.ok(), handle.status().message());
    sink->Wait();
    return sink->result().tokens[0];
  }

  static inline std::string path_, cache_;
};

// The phases of loads, in order.
class Phases : public EngineObserver {
 public:
  void OnLoadPhase(const std::string& model, const std::string& phase, double seconds) override {
    const std::lock_guard lock(mutex_);
    names_.push_back(phase);
  }
  std::vector<std::string> WaitFor(size_t count) const {
    for (int i = 0; i < 3000 && names().size() < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return names();
  }

 private:
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

TEST_F(ModelPoolTest, AColdStartAnswersFirstAndCompilesTheRestAfterwards) {
  using ::testing::ElementsAre;
  PoolOptions options{.models = {Spec("tiny")}, .lazy_load = false};
  options.threads = 1;
  options.cache_dir = cache_ + ".cold";
  std::vector<std::vector<int32_t>> answers;
  for (const bool cold : {true, false}) {
    Phases phases;
    auto pool = ModelPool::Create(options, &phases);
    ASSERT_TRUE(pool.ok()) << pool.status();
    (*pool)->Start();
    WaitFor(**pool, "tiny", ModelState::kReady);
    answers.push_back(Answer(**pool, "tiny"));
    if (cold) {
      EXPECT_THAT(phases.WaitFor(6),
                  ElementsAre("open", "tier0", "host", "total", "compile", "swap"));
    } else {
      EXPECT_THAT(phases.WaitFor(4), ElementsAre("open", "compile", "host", "total"));
    }
    pool->reset();
  }
  EXPECT_EQ(answers[0], answers[1]);
  std::filesystem::remove_all(options.cache_dir);
}

TEST_F(ModelPoolTest, SleepAndWakeKeepTheAnswer) {
  const auto pool = Create({.models = {Spec("tiny")}, .lazy_load = false});
  WaitFor(*pool, "tiny", ModelState::kReady);
  EXPECT_TRUE(pool->started());
  EXPECT_TRUE(pool->ready());
  const std::vector<int32_t> before = Answer(*pool, "tiny");
  EXPECT_EQ(before.size(), 8u);
  ASSERT_EQ(pool->Sleep("tiny"), absl::OkStatus());
  WaitFor(*pool, "tiny", ModelState::kSleeping);
  EXPECT_FALSE(pool->ready());
  EXPECT_TRUE(absl::IsUnavailable(pool->Find("tiny").status()));
  // It was left out, and its gauges kept what it had taken.
  EXPECT_EQ(pool->memory().at("tiny").total(), 0);
  EXPECT_EQ(pool->Models()[0].memory_bytes, 0);
  ASSERT_EQ(pool->Wake("tiny"), absl::OkStatus());
  WaitFor(*pool, "tiny", ModelState::kReady);
  EXPECT_EQ(Answer(*pool, "tiny"), before);
  ASSERT_EQ(pool->UnloadModel("tiny"), absl::OkStatus());
  WaitFor(*pool, "tiny", ModelState::kUnloaded);
  ASSERT_EQ(pool->LoadModel("tiny"), absl::OkStatus());
  WaitFor(*pool, "tiny", ModelState::kReady);
  EXPECT_EQ(Answer(*pool, ""), before);  // the default one
}

TEST_F(ModelPoolTest, ARequestLoadsWhatItNames) {
  const auto pool = Create({.models = {Spec("first"), Spec("second", false)}});
  WaitFor(*pool, "first", ModelState::kReady);
  EXPECT_TRUE(absl::IsUnavailable(pool->Find("second").status()));
  WaitFor(*pool, "second", ModelState::kReady);
  EXPECT_EQ(Answer(*pool, "second"), Answer(*pool, "first"));
  EXPECT_THAT(std::string(pool->Find("third").status().message()), HasSubstr("first, second"));
  EXPECT_TRUE(absl::IsNotFound(pool->LoadModel("third")));
}

TEST_F(ModelPoolTest, OneBudgetForAll) {
  const auto alone = Create({.models = {Spec("a")}});
  WaitFor(*alone, "a", ModelState::kReady);
  const int64_t bytes = alone->memory().at("a").total();
  // Room for one and a half.
  const auto pool = Create({.models = {Spec("a"), Spec("b")}, .memory_limit = bytes * 3 / 2});
  WaitFor(*pool, "a", ModelState::kReady);
  WaitFor(*pool, "b", ModelState::kFailed);
  EXPECT_THAT(pool->Models()[1].error, HasSubstr("of the limit of"));
  // A model that came on request makes way when it is idle.
  const auto lazy =
      Create({.models = {Spec("a", false), Spec("b", false)}, .memory_limit = bytes * 3 / 2});
  ASSERT_EQ(lazy->LoadModel("a"), absl::OkStatus());
  WaitFor(*lazy, "a", ModelState::kReady);
  ASSERT_EQ(lazy->LoadModel("b"), absl::OkStatus());
  WaitFor(*lazy, "b", ModelState::kReady);
  EXPECT_EQ(StateOf(*lazy, "a"), ModelState::kSleeping);
}

// The first default pool took the whole limit, and the second model failed.
TEST_F(ModelPoolTest, TwoDefaultPoolsFitOneLimit) {
  ModelSpec a = Spec("a"), b = Spec("b"), c = Spec("c", false);
  a.kv_tokens = b.kv_tokens = c.kv_tokens = 0;
  const auto alone = Create({.models = {a}});
  WaitFor(*alone, "a", ModelState::kReady);
  const MemoryPlan whole = alone->memory().at("a");
  // Less than both want.
  const int64_t limit = 2 * (whole.total() - whole.kv) + whole.kv;
  const auto pool = Create({.models = {a, b}, .memory_limit = limit});
  WaitFor(*pool, "a", ModelState::kReady);
  WaitFor(*pool, "b", ModelState::kReady);
  const auto plans = pool->memory();
  EXPECT_EQ(plans.at("a").pages, plans.at("b").pages);
  EXPECT_LE(plans.at("a").total() + plans.at("b").total(), limit);
  EXPECT_GT(plans.at("a").kv, whole.kv / 3);
  // One that comes on request has what is left.
  a.kv_tokens = 2048;
  const auto lazy = Create({.models = {a, c}, .memory_limit = limit / 2});
  WaitFor(*lazy, "a", ModelState::kReady);
  ASSERT_EQ(lazy->LoadModel("c"), absl::OkStatus());
  WaitFor(*lazy, "c", ModelState::kReady);
  EXPECT_LE(lazy->memory().at("a").total() + lazy->memory().at("c").total(), limit / 2);
}

// Clients heard that it is being loaded, for ever.
TEST_F(ModelPoolTest, AFailedWakeUpSaysWhy) {
  const auto alone = Create({.models = {Spec("a")}});
  WaitFor(*alone, "a", ModelState::kReady);
  const int64_t bytes = alone->memory().at("a").total();
  const auto pool =
      Create({.models = {Spec("a", false), Spec("b", false)}, .memory_limit = bytes * 3 / 2});
  ASSERT_EQ(pool->LoadModel("a"), absl::OkStatus());
  WaitFor(*pool, "a", ModelState::kReady);
  ASSERT_EQ(pool->LoadModel("b"), absl::OkStatus());
  WaitFor(*pool, "b", ModelState::kReady);
  ASSERT_EQ(StateOf(*pool, "a"), ModelState::kSleeping);
  GenerateRequest r;
  r.model = "b";
  r.prompt = TestTokens(40, 3);
  r.ignore_eos = true;
  auto sink = std::make_shared<Collector>();
  const auto busy = pool->Submit(r, sink);  // so that it does not make way
  ASSERT_TRUE(busy.ok()) << busy.status();
  sink->WaitForTokens(1);
  ASSERT_EQ(pool->Wake("a"), absl::OkStatus());
  WaitFor(*pool, "a", ModelState::kSleeping);
  EXPECT_THAT(pool->Models()[0].error, HasSubstr("of the limit of"));
  const std::string told(pool->Find("a").status().message());
  EXPECT_THAT(told, HasSubstr("model 'a' could not be woken: model 'a' needs"));
  pool->Abort(*busy);
  sink->Wait();
  for (int i = 0; i < 3000 && !pool->Find("a").ok(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(Answer(*pool, "a").size(), 8u);
  EXPECT_EQ(pool->Models()[0].error, "");
}

TEST_F(ModelPoolTest, AMissingFileIsOneModelsFailure) {
  ModelSpec missing = Spec("missing");
  missing.path += ".gone";
  const auto pool = Create({.models = {Spec("tiny"), missing}});
  WaitFor(*pool, "missing", ModelState::kFailed);
  WaitFor(*pool, "tiny", ModelState::kReady);
  EXPECT_TRUE(pool->started());
  EXPECT_EQ(Answer(*pool, "tiny").size(), 8u);
  EXPECT_FALSE(ModelPool::Create({.models = {Spec("x"), Spec("x")}}, nullptr).ok());
  EXPECT_FALSE(ModelPool::Create({}, nullptr).ok());
}

TEST_F(ModelPoolTest, ADrainRefusesAndFinishes) {
  const auto pool = Create({.models = {Spec("tiny")}});
  WaitFor(*pool, "tiny", ModelState::kReady);
  GenerateRequest r;
  r.prompt = TestTokens(40, 3);
  r.max_tokens = 100;
  r.ignore_eos = true;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(pool->Submit(r, sink).ok());
  pool->BeginDrain();
  EXPECT_FALSE(pool->ready());
  EXPECT_TRUE(absl::IsUnavailable(pool->Submit(r, std::make_shared<Collector>()).status()));
  sink->Wait();
  EXPECT_EQ(sink->result().last.status, absl::OkStatus());
  EXPECT_EQ(sink->result().tokens[0].size(), 100u);
  while (!pool->idle()) std::this_thread::yield();
}

}  // namespace
}  // namespace cuvil::server
