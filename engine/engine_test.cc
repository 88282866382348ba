#include "engine/engine.h"

#include <filesystem>
#include <random>

#include "base/checked.h"
#include "engine/test_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kVocab = 272;

std::vector<int32_t> Tokens(int count, int seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % kVocab));
  return tokens;
}

class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = WriteLongModel("engine_test");
    for (const int threads : {1, 2}) {
      auto model = Model::Load(path, {.numerics = plan::Numerics::kFast, .threads = threads});
      ASSERT_TRUE(model.ok()) << model.status();
      ASSERT_EQ((*model)->weights().Wait(), absl::OkStatus());
      ASSERT_EQ((*model)->config().vocab_size, kVocab);
      (threads == 1 ? model_ : model_of_two_) = *model;
    }
    std::filesystem::remove(path);
  }
  static void TearDownTestSuite() { model_ = model_of_two_ = nullptr; }

  static std::unique_ptr<Engine> Create(EngineOptions options = {}, bool two_workers = false) {
    auto engine = Engine::Create(two_workers ? model_of_two_ : model_, options);
    CUVIL_CHECK(engine.ok(), engine.status().message());
    return *std::move(engine);
  }
  static std::vector<float> Row(const Engine& engine, int64_t row) {
    const auto r = engine.logits(row);
    return {r.begin(), r.end()};
  }
  // Logits after `tokens` in a fresh sequence of a fresh engine.
  static std::vector<float> Alone(const std::vector<int32_t>& tokens) {
    const auto engine = Create();
    const SequenceId id = *engine->NewSequence();
    EXPECT_EQ(engine->Prefill(id, tokens), absl::OkStatus());
    return Row(*engine, 0);
  }

  static std::shared_ptr<const Model> model_, model_of_two_;
};

std::shared_ptr<const Model> EngineTest::model_, EngineTest::model_of_two_;

TEST_F(EngineTest, PagesAreFreeOrOwnedOnce) {
  const auto engine = Create({.kv_tokens = 160, .sequences_max = 5});
  std::mt19937 random(1);
  std::vector<SequenceId> live;
  int refused = 0;
  for (int step = 0; step < 400; ++step) {
    const int action = static_cast<int>(random() % 8);
    if (action == 0 && live.size() < 5) {
      live.push_back(*engine->NewSequence());
    } else if (action == 1 && !live.empty()) {
      const size_t i = random() % live.size();
      engine->Free(live[i]);
      live.erase(live.begin() + i);
    } else if (action == 2 && !live.empty()) {
      const SequenceId id = live[random() % live.size()];
      engine->Truncate(id, random() % (engine->length(id) + 1));
    } else {
      std::vector<std::vector<int32_t>> tokens;
      std::vector<Chunk> chunks;
      for (size_t i = 0; i < live.size(); ++i) {
        const int count = random() % 2 ? 0 : 1 + random() % (random() % 4 ? 6 : 60);
        tokens.push_back(Tokens(count, step));
      }
      for (size_t i = 0; i < live.size(); ++i) {
        if (!tokens[i].empty())
          chunks.push_back({live[i], tokens[i], static_cast<Want>(random() % 2)});
      }
      if (chunks.empty()) continue;
      std::vector<int64_t> before;
      for (const SequenceId id : live) before.push_back(engine->length(id));
      const int64_t free_before = engine->free_pages();
      const absl::Status status = engine->Step(chunks);
      if (!status.ok()) {
        ++refused;
        EXPECT_EQ(engine->free_pages(), free_before);
        for (size_t i = 0; i < live.size(); ++i) EXPECT_EQ(engine->length(live[i]), before[i]);
      }
    }
    int64_t owned = 0;
    for (const SequenceId id : live)
      owned += CeilDiv<int64_t>(engine->length(id), engine->page_tokens());
    ASSERT_EQ(engine->free_pages() + owned, engine->pages()) << "after action " << step;
  }
  EXPECT_GT(refused, 0) << "the pool never ran out, so refusals were not tested";
  for (const SequenceId id : live) engine->Free(id);
  EXPECT_EQ(engine->free_pages(), engine->pages());
  EXPECT_EQ(engine->memory().kv, 0);
}

TEST_F(EngineTest, ErrorsLeaveSequencesAsTheyWere) {
  const auto engine = Create({.kv_tokens = 64, .sequences_max = 2});
  const SequenceId a = *engine->NewSequence(), b = *engine->NewSequence();
  EXPECT_EQ(engine->NewSequence().status().code(), absl::StatusCode::kResourceExhausted);
  const std::vector<int32_t> start = Tokens(30, 1), good = Tokens(2, 2);
  ASSERT_EQ(engine->Prefill(a, start), absl::OkStatus());
  const int64_t free_before = engine->free_pages();
  const auto refused = [&](absl::Span<const Chunk> chunks, absl::StatusCode code,
                           const char* part) {
    const absl::Status status = engine->Step(chunks);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_EQ(engine->length(a), 30);
    EXPECT_EQ(engine->length(b), 0);
    EXPECT_EQ(engine->free_pages(), free_before);
  };
  using C = absl::StatusCode;
  for (const int32_t bad : {-1, kVocab, 1 << 30}) {
    const std::vector<int32_t> tokens = {5, bad};
    // The bad chunk comes second: the first must not have happened either.
    refused({{a, good}, {b, tokens}}, C::kInvalidArgument, "vocabulary");
  }
  refused({{a, {}}}, C::kInvalidArgument, "no tokens");
  refused({}, C::kInvalidArgument, "0 rows");
  refused({{b, Tokens(513, 1)}}, C::kInvalidArgument, "513 rows");
  refused({{a, good}, {b, Tokens(100, 3)}}, C::kResourceExhausted, "pages");
  refused({{b, Tokens(kLongContext + 1, 1)}}, C::kInvalidArgument, "context");
  EXPECT_EQ(engine->Prefill(b, Tokens(kLongContext + 1, 1)).code(), C::kInvalidArgument);
  EXPECT_EQ(engine->length(b), 0);
  // And the sequence goes on as if none of it had been tried.
  const Chunk chunk{a, good};
  ASSERT_EQ(engine->Step({&chunk, 1}), absl::OkStatus());
  std::vector<int32_t> all = start;
  all.insert(all.end(), good.begin(), good.end());
  EXPECT_EQ(Row(*engine, 0), Alone(all));
}

TEST_F(EngineTest, AFullContextIsAnError) {
  const auto engine = Create({.kv_tokens = 2 * kLongContext});
  const SequenceId id = *engine->NewSequence();
  ASSERT_EQ(engine->Prefill(id, Tokens(kLongContext, 1)), absl::OkStatus());
  const int32_t one = 1;
  const Chunk chunk{id, {&one, 1}};
  EXPECT_EQ(engine->Step({&chunk, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->length(id), kLongContext);
}

TEST_F(EngineTest, WideStepsUseThePrefillPlan) {
  const auto engine = Create();
  for (const int rows : {1, 8, 9, 512}) {
    const SequenceId id = *engine->NewSequence();
    const std::vector<int32_t> tokens = Tokens(rows, rows);
    const Chunk chunk{id, tokens};
    std::vector<LaunchTime> times;
    ASSERT_EQ(engine->StepTimed({&chunk, 1}, &times), absl::OkStatus());
    const bool wide = rows > 8;
    int seen = 0;
    for (const LaunchTime& t : times) {
      if (!t.kernel.starts_with("decode_") && !t.kernel.starts_with("prefill_")) continue;
      EXPECT_THAT(t.kernel, StartsWith(wide ? "prefill_" : "decode_")) << rows << " rows";
      ++seen;
    }
    EXPECT_GT(seen, 0);
    EXPECT_EQ(Row(*engine, 0), Alone(tokens));
    engine->Free(id);
  }
}

TEST_F(EngineTest, WantDecidesTheRowsOfLogits) {
  const auto engine = Create();
  const SequenceId a = *engine->NewSequence(), b = *engine->NewSequence(),
                   c = *engine->NewSequence();
  const std::vector<int32_t> ta = Tokens(3, 1), tb = Tokens(4, 2), tc = Tokens(5, 3);
  ASSERT_EQ(engine->Step({{a, ta, Want::kNone}}), absl::OkStatus());
  EXPECT_EQ(engine->logit_rows(), 0);
  ASSERT_EQ(engine->Step({{b, tb, Want::kAll}, {a, ta, Want::kNone}, {c, tc, Want::kLast}}),
            absl::OkStatus());
  EXPECT_EQ(engine->logit_rows(), 5);
  EXPECT_EQ(Row(*engine, 3), Alone(tb));
  EXPECT_EQ(Row(*engine, 4), Alone(tc));
  EXPECT_EQ(Row(*engine, 0), Alone({tb[0]}));
}

// Long contexts cut attention by key blocks when rows are few; the bits stay.
TEST_F(EngineTest, CutAttentionKeepsItsBits) {
  for (const int length : {255, 256, 257, 600, 1000}) {
    const std::vector<int32_t> prompt = Tokens(length, 7);
    std::vector<std::vector<float>> results;
    for (const bool two_workers : {false, true}) {
      const auto engine = Create({.kv_tokens = 4096}, two_workers);
      const SequenceId id = *engine->NewSequence();
      // One long row after another: each is cut.
      ASSERT_EQ(engine->Prefill(id, absl::MakeSpan(prompt).first(length - 1)), absl::OkStatus());
      const Chunk last{id, absl::MakeSpan(prompt).last(1)};
      ASSERT_EQ(engine->Step({&last, 1}), absl::OkStatus());
      results.push_back(Row(*engine, 0));
      // The same row among seven others, enough to occupy the workers uncut.
      engine->Truncate(id, length - 1);
      const std::vector<int32_t> others = Tokens(7, 9);
      std::vector<Chunk> chunks = {last};
      for (int i = 0; i < 7; ++i)
        chunks.push_back({*engine->NewSequence(), {&others[i], 1}, Want::kNone});
      ASSERT_EQ(engine->Step(chunks), absl::OkStatus());
      results.push_back(Row(*engine, 0));
      // The whole prompt at once, as far as a step goes: rows in blocks.
      const SequenceId whole = *engine->NewSequence();
      ASSERT_EQ(engine->Prefill(whole, prompt), absl::OkStatus());
      results.push_back(Row(*engine, 0));
    }
    for (size_t i = 1; i < results.size(); ++i) {
      EXPECT_EQ(results[i], results[0]) << "length " << length << " way " << i;
    }
  }
}

TEST_F(EngineTest, SequencesAreIndependent) {
  const auto engine = Create({.kv_tokens = 1024, .sequences_max = 4}, true);
  const std::vector<int32_t> ta = Tokens(70, 1), tb = Tokens(45, 2);
  const SequenceId a = *engine->NewSequence(), b = *engine->NewSequence();
  std::vector<float> la, lb;
  for (size_t at = 0; at < ta.size(); at += 7) {
    std::vector<Chunk> chunks = {{a, absl::MakeSpan(ta).subspan(at, 7)}};
    if (at < tb.size()) chunks.push_back({b, absl::MakeSpan(tb).subspan(at, 7)});
    ASSERT_EQ(engine->Step(chunks), absl::OkStatus());
    la = Row(*engine, 0);
    if (chunks.size() == 2) lb = Row(*engine, 1);
  }
  EXPECT_EQ(la, Alone(ta));
  EXPECT_EQ(lb, Alone(tb));
  // Pages and places of an ended sequence serve another one.
  engine->Free(a);
  const SequenceId again = *engine->NewSequence();
  const std::vector<int32_t> tc = Tokens(33, 3);
  ASSERT_EQ(engine->Prefill(again, tc), absl::OkStatus());
  EXPECT_EQ(Row(*engine, 0), Alone(tc));
}

TEST_F(EngineTest, TruncationForgets) {
  const auto engine = Create();
  const SequenceId id = *engine->NewSequence();
  const std::vector<int32_t> wrong = Tokens(80, 1), right = Tokens(50, 2);
  ASSERT_EQ(engine->Prefill(id, absl::MakeSpan(right).first(40)), absl::OkStatus());
  ASSERT_EQ(engine->Prefill(id, wrong), absl::OkStatus());
  engine->Truncate(id, 40);
  EXPECT_EQ(engine->length(id), 40);
  ASSERT_EQ(engine->Prefill(id, absl::MakeSpan(right).last(10), 3), absl::OkStatus());
  EXPECT_EQ(Row(*engine, 0), Alone(right));
}

TEST_F(EngineTest, AStepCompilesNothing) {
  const int64_t emitted = driver::KernelsEmitted();
  Alone(Tokens(20, 1));
  EXPECT_EQ(driver::KernelsEmitted(), emitted);
}

}  // namespace
}  // namespace cuvil::engine
