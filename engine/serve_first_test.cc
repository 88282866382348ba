// Answering before all kernels are compiled: the same bits, the same cache, and no step waits.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/file.h"
#include "engine/engine.h"
#include "engine/test_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kVocab = 272;

// Holds the rest of a compilation back until it is opened; for a minute at most, so that a test
// that fails ends.
class Gate {
 public:
  std::function<absl::Status()> hook() {
    return [this] {
      std::unique_lock lock(mutex_);
      opened_.wait_for(lock, std::chrono::minutes(1), [this] { return open_; });
      return status_;
    };
  }
  void Open(absl::Status status = absl::OkStatus()) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  absl::Status status_;
  bool open_ = false;
};

std::shared_ptr<const Model> Load(const std::string& path, const LoadOptions& options) {
  auto model = Model::Load(path, options);
  CUVIL_CHECK(model.ok(), model.status().message());
  return *std::move(model);
}

std::unique_ptr<Engine> EngineOf(std::shared_ptr<const Model> model) {
  auto engine = Engine::Create(std::move(model), {.kv_tokens = 2048, .sequences_max = 9});
  CUVIL_CHECK(engine.ok(), engine.status().message());
  return *std::move(engine);
}

std::vector<int32_t> Tokens(int count, int seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % kVocab));
  return tokens;
}

// One step of the same chunk sizes for the sequences of an engine, and the logits of all rows.
std::vector<float> StepOf(Engine& engine, const std::vector<SequenceId>& ids,
                          const std::vector<int>& rows, int seed) {
  std::vector<std::vector<int32_t>> tokens;
  for (const int n : rows) tokens.push_back(Tokens(n, seed++));
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) chunks.push_back({ids[i], tokens[i], Want::kAll});
  }
  EXPECT_EQ(engine.Step(chunks), absl::OkStatus());
  std::vector<float> all;
  for (int64_t row = 0; row < engine.logit_rows(); ++row) {
    const auto logits = engine.logits(row);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Kernels of a step of one row.
std::vector<std::string> KernelsOfARow(Engine& engine, SequenceId id) {
  const std::vector<int32_t> token = {1};
  const Chunk chunk{id, token, Want::kLast};
  std::vector<LaunchTime> times;
  EXPECT_EQ(engine.StepTimed({&chunk, 1}, &times), absl::OkStatus());
  std::vector<std::string> names;
  for (const LaunchTime& time : times) names.push_back(time.kernel);
  return names;
}

std::vector<SequenceId> Sequences(Engine& engine, int count) {
  std::vector<SequenceId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(*engine.NewSequence());
  return ids;
}

// Rows of three sequences per step: what either plan runs, few rows at once and a mixture.
const std::vector<std::vector<int>> kSteps = {{1, 0, 0}, {2, 1, 0}, {3, 2, 3}, {0, 8, 0}, {1, 1, 1},
                                              {5, 0, 2}, {1, 9, 1}, {1, 1, 1}, {0, 0, 7}, {4, 4, 0},
                                              {1, 0, 1}, {6, 1, 1}, {1, 1, 1}};

// The logits of each of those steps in turn.
std::vector<std::vector<float>> Logits(Engine& engine, const std::vector<SequenceId>& ids,
                                       const std::vector<std::vector<int>>& steps) {
  std::vector<std::vector<float>> logits;
  for (size_t i = 0; i < steps.size(); ++i)
    logits.push_back(StepOf(engine, ids, steps[i], static_cast<int>(i) * 10));
  return logits;
}

struct Case {
  const char* model;
  plan::Numerics numerics = plan::Numerics::kFast;
};

class ServeFirstTest : public ::testing::TestWithParam<Case> {};

// Before the swap every step runs the widest plan, and after it the plan of its rows.
TEST_P(ServeFirstTest, TheWidestPlanGivesTheSameBits) {
  Gate gate;
  const auto model = Load(TinyModel(GetParam().model), {.numerics = GetParam().numerics,
                                                        .threads = 2,
                                                        .serve_first = true,
                                                        .before_rest = gate.hook()});
  ASSERT_TRUE(model->timing().tier0);
  const auto first = EngineOf(model);
  const auto a = Sequences(*first, 3);
  const auto expected = Logits(*first, a, kSteps);
  ASSERT_FALSE(model->code().whole());
  gate.Open();
  ASSERT_EQ(model->code().Finish().status, absl::OkStatus());
  const auto whole = EngineOf(model);
  const auto b = Sequences(*whole, 3);
  const auto logits = Logits(*whole, b, kSteps);
  for (size_t i = 0; i < kSteps.size(); ++i)
    EXPECT_TRUE(SameBits(logits[i], expected[i])) << "step " << i;
  // The pages the one plan wrote are what the other would have written.
  EXPECT_TRUE(SameBits(StepOf(*first, a, {1, 1, 1}, 7), StepOf(*whole, b, {1, 1, 1}, 7)));
  EXPECT_EQ(KernelsOfARow(*first, a[0]), KernelsOfARow(*whole, b[0]));
}

INSTANTIATE_TEST_SUITE_P(Models, ServeFirstTest,
                         ::testing::Values(Case{"llama-q4_1"},
                                           Case{"llama-q4_1", plan::Numerics::kExact},
                                           Case{"llama-q8_0"}, Case{"qwen2-f16"}, Case{"qwen3-f32"},
                                           Case{"gemma3-f16"}));

TEST(ServeFirst, LongContextsGiveTheSameBits) {
  const std::string path = WriteLongModel("serve_first_test");
  Gate gate;
  const auto model = Load(path, {.threads = 2, .serve_first = true, .before_rest = gate.hook()});
  fs::remove(path);
  // Three key blocks: few rows are cut along the context, and merged.
  const std::vector<std::vector<int>> steps = {{500, 0}, {99, 3}, {1, 1}, {1, 0},  {2, 1}, {3, 0},
                                               {7, 1},   {0, 8},  {1, 1}, {40, 3}, {1, 1}};
  const auto first = EngineOf(model);
  const auto expected = Logits(*first, Sequences(*first, 2), steps);
  ASSERT_FALSE(model->code().whole());
  gate.Open();
  ASSERT_EQ(model->code().Finish().status, absl::OkStatus());
  const auto whole = EngineOf(model);
  const auto logits = Logits(*whole, Sequences(*whole, 2), steps);
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_TRUE(SameBits(logits[i], expected[i])) << "step " << i;
}

TEST(ServeFirst, TheSwapIsBetweenSteps) {
  Gate gate;
  const std::string path = TinyModel("llama-q4_1");
  const auto first =
      EngineOf(Load(path, {.threads = 1, .serve_first = true, .before_rest = gate.hook()}));
  const auto whole = EngineOf(Load(path, {.threads = 1}));
  const auto a = Sequences(*first, 1), b = Sequences(*whole, 1);
  const int64_t emitted = driver::KernelsEmitted();
  const std::vector<std::string> before = KernelsOfARow(*first, a[0]);
  EXPECT_THAT(before, ::testing::Contains(StartsWith("prefill_")));
  EXPECT_THAT(before, ::testing::Not(::testing::Contains(StartsWith("decode_"))));
  KernelsOfARow(*whole, b[0]);
  EXPECT_EQ(driver::KernelsEmitted(), emitted) << "a step compiled something";
  // Steps go on while the other thread emits, links and publishes.
  gate.Open();
  int steps = 0;
  for (bool ready = false; !ready; ++steps) {
    ASSERT_LT(steps, 1'000'000);
    ready = first->model().code().whole();
    // Two engines that never rest leave a thread of low priority nothing.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (first->length(a[0]) + 2 >= first->context()) {
      first->Truncate(a[0], 0);
      whole->Truncate(b[0], 0);
    }
    ASSERT_TRUE(SameBits(StepOf(*first, a, {2}, steps), StepOf(*whole, b, {2}, steps))) << steps;
  }
  EXPECT_THAT(KernelsOfARow(*first, a[0]), ::testing::Contains(StartsWith("decode_")));
  EXPECT_GT(driver::KernelsEmitted(), emitted);
  const ModelCode::End end = first->model().code().Finish();
  EXPECT_EQ(end.status, absl::OkStatus());
  EXPECT_GE(end.seconds, first->model().timing().compile_s);
}

TEST(ServeFirst, AnErrorLeavesTheModelWithTheWidestPlan) {
  Gate gate;
  gate.Open(absl::ResourceExhaustedError("no memory for the rest"));
  const auto engine = EngineOf(Load(
      TinyModel("llama-q4_1"), {.threads = 1, .serve_first = true, .before_rest = gate.hook()}));
  EXPECT_THAT(engine->model().code().Finish().status.message(), HasSubstr("no memory"));
  EXPECT_FALSE(engine->model().code().whole());
  const auto ids = Sequences(*engine, 1);
  EXPECT_EQ(StepOf(*engine, ids, {1}, 1).size(), kVocab);
  // And one that sleeps wakes with it.
  const auto awake = Model::Wake(engine->model().Sleep());
  ASSERT_TRUE(awake.ok()) << awake.status();
  const auto again = EngineOf(*awake);
  EXPECT_EQ(StepOf(*again, Sequences(*again, 1), {1}, 1),
            StepOf(*engine, Sequences(*engine, 1), {1}, 1));
}

class ServeFirstCacheTest : public ::testing::Test {
 protected:
  ServeFirstCacheTest() {
    std::string name = (fs::temp_directory_path() / "cuvil_serve_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    base_ = name;
  }
  ~ServeFirstCacheTest() override { fs::remove_all(base_); }

  std::string Dir(const char* name) const { return (base_ / name).string(); }
  // Every file below a folder.
  static std::map<std::string, std::string> FilesOf(const std::string& dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      if (!entry.is_regular_file()) continue;
      auto bytes = ReadFile(entry.path().string(), 1 << 24);
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      files[fs::relative(entry.path(), dir).string()] = *bytes;
    }
    return files;
  }

  fs::path base_;
};

TEST_F(ServeFirstCacheTest, TheEntryIsThatOfABlockingCompile) {
  const std::string path = TinyModel("llama-q4_1");
  const auto blocking = Load(path, {.threads = 2, .cache_dir = Dir("blocking")});
  Gate gate;
  const auto first = Load(
      path,
      {.threads = 2, .cache_dir = Dir("first"), .serve_first = true, .before_rest = gate.hook()});
  EXPECT_TRUE(FilesOf(Dir("first")).empty()) << "half a program is no entry";
  // Estimated while kernels are missing, and not below the truth.
  EXPECT_GE(first->code().bytes(), blocking->code().bytes());
  gate.Open();
  const ModelCode::End end = first->code().Finish();
  EXPECT_EQ(end.status, absl::OkStatus());
  EXPECT_EQ(end.cache_note, "");
  EXPECT_EQ(first->code().bytes(), blocking->code().bytes());
  const auto files = FilesOf(Dir("blocking"));
  EXPECT_GT(files.size(), 4u);
  EXPECT_EQ(FilesOf(Dir("first")), files);

  const int64_t emitted = driver::KernelsEmitted();
  const auto cached = Load(path, {.threads = 2, .cache_dir = Dir("first"), .serve_first = true});
  EXPECT_TRUE(cached->timing().from_cache);
  EXPECT_FALSE(cached->timing().tier0);
  EXPECT_TRUE(cached->code().whole());
  EXPECT_EQ(driver::KernelsEmitted(), emitted);
}

// Whatever the thread is doing at that moment, the cache has all of the entry or nothing.
TEST_F(ServeFirstCacheTest, AModelMayGoWhileTheRestIsEmitted) {
  const std::string path = TinyModel("llama-q4_1");
  Load(path, {.threads = 2, .cache_dir = Dir("blocking")});
  const auto entry = FilesOf(Dir("blocking"));
  for (const int wait_ms : {0, 5, 20, 60}) {
    const std::string dir = Dir(std::to_string(wait_ms).c_str());
    {
      const auto engine =
          EngineOf(Load(path, {.threads = 2, .cache_dir = dir, .serve_first = true}));
      StepOf(*engine, Sequences(*engine, 1), {2}, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    }
    const auto files = FilesOf(dir);
    EXPECT_TRUE(files.empty() || files == entry) << files.size() << " files";
  }
}

TEST_F(ServeFirstCacheTest, ASleepingModelIsFinishedToo) {
  Gate gate;
  std::shared_ptr<const SleepingModel> sleeping;
  {
    const auto model = Load(
        TinyModel("llama-q4_1"),
        {.threads = 2, .cache_dir = Dir("cache"), .serve_first = true, .before_rest = gate.hook()});
    sleeping = model->Sleep();
  }
  gate.Open();
  const auto awake = Model::Wake(sleeping);
  ASSERT_TRUE(awake.ok()) << awake.status();
  EXPECT_EQ((*awake)->code().Finish().status, absl::OkStatus());
  EXPECT_TRUE((*awake)->code().whole());
  EXPECT_FALSE(FilesOf(Dir("cache")).empty());
}

}  // namespace
}  // namespace cuvil::engine
