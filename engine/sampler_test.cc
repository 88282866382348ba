// The sampler against a plain reference in double that sorts the whole vocabulary.
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/checked.h"
#include "base/cpu.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::engine {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Draws and shares this close to a boundary may fall on either side: sums are good to about 1e-6.
constexpr double kBoundary = 1e-5;
constexpr double kLogprobTolerance = 1e-5;

runtime::Executor& Workers(int count) {
  static std::vector<std::unique_ptr<runtime::Executor>> executors(3);
  if (executors[count] == nullptr) {
    executors[count] = *runtime::Executor::Create({.workers = count, .scratch_bytes = 64});
  }
  return *executors[count];
}

// Compiled once per target for all tests; samplers of every vocabulary share nothing else.
std::unique_ptr<Sampler> MakeSampler(int64_t vocab, const std::string& target = "") {
  auto t = target.empty() ? emit::BestTarget(AcquireCpuFeatures()) : emit::FindTarget(target);
  EXPECT_EQ(t.status(), absl::OkStatus());
  auto s = Sampler::Create(SamplerOptions{.vocab_size = vocab, .target = *t});
  EXPECT_EQ(s.status(), absl::OkStatus());
  return *std::move(s);
}

std::vector<float> Row(int64_t vocab, uint64_t seed, double spread) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> x(AlignUp<int64_t>(vocab, 64), kNan);  // the padding must not matter
  for (int64_t i = 0; i < vocab; ++i) x[i] = static_cast<float>(normal(random));
  return x;
}

struct Reference {
  int32_t id = -1;
  bool near = false;             // a boundary is too close to insist on the token
  std::vector<double> logprobs;  // by id
  std::vector<int32_t> ranked;   // all ids, largest first
};

// Every step of sampler.h, by the book.
Reference ReferenceSample(std::vector<float> x, int64_t vocab, const SamplingParams& p,
                          const std::vector<int32_t>& history, int64_t index) {
  x.resize(vocab);
  for (const auto& [id, bias] : p.logit_bias) x[id] = static_cast<float>(x[id] + bias);
  std::map<int32_t, int> counts;
  for (const int32_t id : history) ++counts[id];
  for (const auto& [id, count] : counts) {
    double v = x[id];
    v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    x[id] = static_cast<float>(v - p.presence_penalty - count * p.frequency_penalty);
  }
  Reference r;
  r.ranked.resize(vocab);
  std::iota(r.ranked.begin(), r.ranked.end(), 0);
  std::stable_sort(r.ranked.begin(), r.ranked.end(), [&](int a, int b) { return x[a] > x[b]; });
  const double max = x[r.ranked[0]];
  double total = 0;
  for (const int32_t id : r.ranked) total += std::exp(x[id] - max);
  for (const float v : x) r.logprobs.push_back(v - max - std::log(total));
  r.id = r.ranked[0];
  if (p.temperature == 0) return r;

  std::vector<int32_t> order = r.ranked;
  const auto weight = [&](int32_t id) { return std::exp((x[id] - max) / p.temperature); };
  if (p.top_k > 0 && p.top_k < vocab) order.resize(p.top_k);
  if (p.min_p > 0) {
    const auto keep = [&](int32_t id) {
      if (std::abs(weight(id) / p.min_p - 1) < kBoundary && id != r.ranked[0]) r.near = true;
      return weight(id) >= p.min_p;
    };
    order.erase(std::partition_point(order.begin(), order.end(), keep), order.end());
    for (const int32_t id : r.ranked) keep(id);
  }
  const auto mass = [&] {
    double sum = 0;
    for (const int32_t id : order) sum += weight(id);
    return sum;
  };
  if (p.top_p < 1) {
    const double all = mass();
    double run = 0;
    size_t kept = 0;
    while (kept < order.size()) {
      run += weight(order[kept++]);
      if (std::abs(run / all - p.top_p) < kBoundary) r.near = true;
      if (run / all >= p.top_p) break;
    }
    order.resize(kept);
  }
  const bool all = (p.top_k == 0 || p.top_k >= vocab) && p.min_p == 0 && p.top_p == 1;
  if (all) std::sort(order.begin(), order.end());
  const double u = UniformDraw(p.seed, index), kept = mass();
  double run = 0;
  r.id = -1;
  for (const int32_t id : order) {
    run += weight(id) / kept;
    if (std::abs(run - u) < kBoundary) r.near = true;
    if (r.id < 0 && run > u) r.id = id;
  }
  return r;
}

SamplingParams RandomParams(std::mt19937_64& random, int64_t vocab) {
  const auto pick = [&](std::vector<double> of) { return of[random() % of.size()]; };
  SamplingParams p;
  p.temperature = pick({0, 0.2, 0.7, 1, 1, 1.3, 3});
  p.top_k = static_cast<int64_t>(pick({0, 0, 0, 1, 2, 40, 1000, static_cast<double>(vocab)}));
  p.top_p = pick({1, 1, 1, 0.1, 0.5, 0.9, 0.95, 0.99});
  p.min_p = pick({0, 0, 0, 1e-6, 0.01, 0.1, 1});
  p.repetition_penalty = pick({1, 1, 1.3, 0.8});
  p.presence_penalty = pick({0, 0, 1.5, -1});
  p.frequency_penalty = pick({0, 0, 0.5, -0.25});
  for (int i = static_cast<int>(random() % 4); i > 0; --i) {
    p.logit_bias[static_cast<int32_t>(random() % vocab)] = pick({-100, -1, 2, 100});
  }
  p.seed = random();
  p.logprobs = static_cast<int>(pick({-1, 0, 5, 20}));
  return p;
}

std::string Describe(const SamplingParams& p) {
  return absl::StrCat("T ", p.temperature, " k ", p.top_k, " p ", p.top_p, " min ", p.min_p,
                      " rep ", p.repetition_penalty, " pres ", p.presence_penalty, " freq ",
                      p.frequency_penalty, " seed ", p.seed, " logprobs ", p.logprobs);
}

void ExpectLogprobs(const SampledToken& token, const Reference& reference, int count) {
  EXPECT_NEAR(token.logprob, reference.logprobs[token.id], kLogprobTolerance);
  ASSERT_EQ(token.top.size(), std::min<size_t>(count, reference.ranked.size()));
  for (size_t i = 0; i < token.top.size(); ++i) {
    EXPECT_EQ(token.top[i].first, reference.ranked[i]);
    EXPECT_NEAR(token.top[i].second, reference.logprobs[token.top[i].first], kLogprobTolerance);
  }
}

TEST(Sampler, AgreesWithTheReference) {
  int near = 0, draws = 0;
  for (const int64_t vocab : {1, 7, 64, 300, 1000, 5000, 20000}) {
    const auto sampler = MakeSampler(vocab);
    std::mt19937_64 random(vocab);
    const int rounds = vocab < 1000 ? 150 : 40;
    for (int round = 0; round < rounds; ++round) {
      const double spread = std::vector<double>{0.5, 3, 8}[random() % 3];
      const std::vector<float> x = Row(vocab, random(), spread);
      const SamplingParams p = RandomParams(random, vocab);
      ASSERT_EQ(CheckSampling(p, vocab), absl::OkStatus());
      std::vector<int32_t> history(random() % 30);
      for (int32_t& id : history) id = static_cast<int32_t>(random() % vocab);
      const int64_t index = static_cast<int64_t>(random() % 1000);
      std::vector<float> row = x;
      const auto token = sampler->Sample(Workers(2), row.data(), p, history, index);
      ASSERT_EQ(token.status(), absl::OkStatus());
      const Reference reference = ReferenceSample(x, vocab, p, history, index);
      ++draws;
      if (reference.near) {
        ++near;
      } else {
        ASSERT_EQ(token->id, reference.id) << "vocab " << vocab << " " << Describe(p);
      }
      if (p.logprobs >= 0) ExpectLogprobs(*token, reference, p.logprobs);
    }
  }
  EXPECT_LT(near, draws / 4) << "boundaries must stay the exception";
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  const int64_t vocab = 1000;
  const auto sampler = MakeSampler(vocab);
  for (const int32_t first : {0, 1, 255, 256, 700}) {
    std::vector<float> row = Row(vocab, 1, 1);
    for (const int32_t id : {first, 701, 999}) row[id] = 50;
    SamplingParams p{.temperature = 0};
    EXPECT_EQ(sampler->Sample(Workers(1), row.data(), p, {}, 0)->id, first);
    p = {.temperature = 1, .top_k = 1};
    EXPECT_EQ(sampler->Sample(Workers(1), row.data(), p, {}, 0)->id, first);
  }
}

TEST(Sampler, EqualLogitsStillCountAsTopK) {
  const auto sampler = MakeSampler(3000);
  std::vector<float> row(AlignUp<int64_t>(3000, 64), 1.0f);
  SamplingParams p{.temperature = 1, .top_k = 5};
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_LT(sampler->Sample(Workers(1), row.data(), p, {}, i)->id, 5);
  }
}

TEST(Sampler, BrokenRowsFailAlone) {
  const int64_t vocab = 300;
  const auto sampler = MakeSampler(vocab);
  const SamplingParams p;
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(Row(vocab, i, 2));
  rows[1][299] = kNan;
  std::fill(rows[2].begin(), rows[2].end(), -kInf);
  rows[3][0] = kInf;
  std::vector<SampleJob> jobs;
  for (auto& row : rows) jobs.push_back({.row = row.data(), .params = &p});
  const auto results = sampler->SampleRows(Workers(2), jobs);
  EXPECT_EQ(results[0].status(), absl::OkStatus());
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(results[1].status().message()), HasSubstr("NaN among logits 256 to 299"));
  EXPECT_EQ(results[2].status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(results[3].status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(results[4].status(), absl::OkStatus());
}

// 1e-320 turned the logits of what had come into infinities, and the request failed.
TEST(Sampler, TheSmallestRepetitionPenaltyForcesRepetitions) {
  const int64_t vocab = 300;
  const auto sampler = MakeSampler(vocab);
  const std::vector<float> logits = Row(vocab, 3, 3);
  const int32_t liked = static_cast<int32_t>(
      std::max_element(logits.begin(), logits.begin() + vocab) - logits.begin());
  const std::vector<int32_t> history = {liked};
  for (const double temperature : {0.0, 1.0, 100.0}) {
    std::vector<float> row = logits;
    const SamplingParams p{
        .temperature = temperature, .repetition_penalty = 1e-320, .seed = 5, .logprobs = 2};
    const auto token = sampler->Sample(Workers(1), row.data(), p, history, 0);
    ASSERT_EQ(token.status(), absl::OkStatus());
    EXPECT_EQ(token->id, liked);
    EXPECT_EQ(token->logprob, 0);
  }
}

// Alone, in a batch, on one worker or two, on any target: the same token and the same bits.
TEST(Sampler, NothingElseChangesAResult) {
  const int64_t vocab = 9001;
  std::vector<std::unique_ptr<Sampler>> samplers;
  for (const emit::Target& t : emit::AllTargets()) {
    if (emit::Runs(t, AcquireCpuFeatures())) samplers.push_back(MakeSampler(vocab, t.name));
  }
  std::mt19937_64 random(11);
  constexpr int kJobs = 12;
  std::vector<SamplingParams> params;
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < kJobs; ++i) {
    params.push_back(RandomParams(random, vocab));
    rows.push_back(Row(vocab, i, 3));
  }
  std::vector<SampledToken> alone;
  for (int i = 0; i < kJobs; ++i) {
    std::vector<float> row = rows[i];
    alone.push_back(*samplers[0]->Sample(Workers(1), row.data(), params[i], {}, i));
  }
  for (const auto& sampler : samplers) {
    for (const int workers : {1, 2}) {
      auto copies = rows;
      std::vector<SampleJob> jobs;
      for (int i = 0; i < kJobs; ++i) {
        jobs.push_back({.row = copies[i].data(), .params = &params[i], .output_index = i});
      }
      const auto results = sampler->SampleRows(Workers(workers), jobs);
      for (int i = 0; i < kJobs; ++i) {
        ASSERT_EQ(results[i].status(), absl::OkStatus());
        EXPECT_EQ(results[i]->id, alone[i].id);
        EXPECT_EQ(results[i]->logprob, alone[i].logprob);
        EXPECT_EQ(results[i]->top, alone[i].top);
      }
    }
  }
}

// Chi-square over 8 tokens and 20000 draws; 7 degrees of freedom exceed 29.9 once in 10^4, and the
// seed is fixed, so a failure is a change of the distribution.
void ExpectDistribution(const SamplingParams& params, const std::vector<double>& probabilities) {
  const auto sampler = MakeSampler(8);
  std::vector<float> row(64);
  for (int i = 0; i < 8; ++i) row[i] = static_cast<float>(std::log(1.0 + i));
  constexpr int kDraws = 20000;
  std::vector<int> counts(8);
  for (int i = 0; i < kDraws; ++i) {
    ++counts[sampler->Sample(Workers(1), row.data(), params, {}, i)->id];
  }
  double chi2 = 0;
  for (int i = 0; i < 8; ++i) {
    const double expected = probabilities[i] * kDraws;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << i;
    } else {
      chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  EXPECT_LT(chi2, 29.9);
}

TEST(Sampler, DrawsFollowTheDistribution) {
  std::vector<double> p;
  for (int i = 0; i < 8; ++i) p.push_back((1.0 + i) / 36);
  ExpectDistribution({.temperature = 1, .seed = 1}, p);
  for (int i = 0; i < 8; ++i) p[i] = (1.0 + i) * (1 + i) / 204;
  ExpectDistribution({.temperature = 0.5, .seed = 2}, p);
  for (int i = 0; i < 8; ++i) p[i] = i < 5 ? 0 : (1.0 + i) / 21;
  ExpectDistribution({.temperature = 1, .top_k = 3, .seed = 3}, p);
  ExpectDistribution({.temperature = 1, .top_p = 0.5, .seed = 4}, p);  // 8 + 7 < 18 < 8 + 7 + 6
  ExpectDistribution({.temperature = 1, .min_p = 0.7, .seed = 5}, p);
}

// Every token has the same chance, so the nucleus is most of the vocabulary: the slow path.
TEST(Sampler, FlatDistributionsKeepTheirShare) {
  const int64_t vocab = 4000;
  const auto sampler = MakeSampler(vocab);
  std::vector<float> row(AlignUp<int64_t>(vocab, 64), 0.0f);
  const SamplingParams p{.temperature = 1, .top_p = 0.5};
  int32_t largest = 0;
  for (int64_t i = 0; i < 300; ++i) {
    largest = std::max(largest, sampler->Sample(Workers(1), row.data(), p, {}, i)->id);
  }
  EXPECT_LT(largest, 2000);
  EXPECT_GT(largest, 1950);
}

TEST(UniformDraw, IsPhilox4x32) {
  // From the published known-answer test of 4x32-10: counter and key zero give 6627e8d5 e169c58d.
  EXPECT_EQ(UniformDraw(0, 0), static_cast<double>(uint64_t{0x6627e8d5e169c58d} >> 11) * 0x1p-53);
  EXPECT_NE(UniformDraw(0, 1), UniformDraw(0, 0));
  EXPECT_NE(UniformDraw(uint64_t{1} << 32, 0), UniformDraw(0, 0));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = UniformDraw(42, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.012);  // four standard deviations of the mean
}

TEST(CheckSampling, NamesWhatIsWrong) {
  EXPECT_EQ(CheckSampling({}, 10), absl::OkStatus());
  const auto error = [](const SamplingParams& p) {
    return std::string(CheckSampling(p, 10).message());
  };
  EXPECT_THAT(error({.temperature = -1}), HasSubstr("temperature is -1"));
  EXPECT_THAT(error({.temperature = kNan}), HasSubstr("temperature"));
  EXPECT_THAT(error({.top_p = 0}), HasSubstr("top_p is 0"));
  EXPECT_THAT(error({.top_p = 1.5}), HasSubstr("top_p"));
  EXPECT_THAT(error({.top_k = -1}), HasSubstr("top_k"));
  EXPECT_THAT(error({.min_p = kNan}), HasSubstr("min_p"));
  EXPECT_THAT(error({.repetition_penalty = 0}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(error({.presence_penalty = 2.5}), HasSubstr("presence_penalty"));
  EXPECT_THAT(error({.frequency_penalty = kNan}), HasSubstr("frequency_penalty"));
  EXPECT_THAT(error({.logit_bias = {{10, 1.0}}}), HasSubstr("token 10"));
  EXPECT_THAT(error({.logit_bias = {{3, -101.0}}}), HasSubstr("-101"));
  EXPECT_THAT(error({.logprobs = 21}), HasSubstr("logprobs is 21"));
}

}  // namespace
}  // namespace cuvil::engine
