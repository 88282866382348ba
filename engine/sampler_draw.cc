// The host's half of a sample: from block statistics to a token, reading only the blocks that can
// hold what is looked for.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/sampler.h"

namespace cuvil::engine {
namespace {

using kernel::kSampleBlock;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Weights below e^-60 are less than the rounding of any sum they are in.
constexpr double kExponentMin = -60;
// Candidates are looked for down to this far (in exponents) below the maximum, then twice as far,
// ... Nearly every nucleus of a language model lies within the first two.
constexpr double kFirstReach = 4;
constexpr double kLastReach = 64;  // then everything
// Runs of candidates up to this size are sorted; larger ones are divided first.
constexpr size_t kSortMax = 64;

double Weight(double exponent) { return exponent < kExponentMin ? 0 : std::exp(exponent); }

// The smallest float that is at least v; never an infinity, so that -inf is never collected.
float RoundUp(double v) {
  if (!(v > kLowest)) return kLowest;
  const float f = static_cast<float>(v);
  return static_cast<double>(f) < v ? std::nextafter(f, kInf) : f;
}

// Larger first, lowest id among equals.
constexpr auto kByRank = [](const auto& a, const auto& b) {
  return a.x > b.x || (a.x == b.x && a.id < b.id);
};

}  // namespace

int32_t Sampler::Greedy(const Row& row) const {
  int64_t block = 0;
  while (row.blocks[block].max != row.max) ++block;
  int64_t id = block * kSampleBlock;
  while (row.x[id] != row.max) ++id;
  return static_cast<int32_t>(id);
}

// Fills masses_ by block; the sum of exp((x - max) * scale) over the row.
double Sampler::TotalMass(const Row& row, double scale, bool second) {
  masses_.resize(blocks_);
  double total = 0;
  for (int64_t b = 0; b < blocks_; ++b) {
    const kernel::SampleRecord& r = row.blocks[b];
    const double exponent = (static_cast<double>(r.max) - row.max) * scale;
    masses_[b] = Weight(exponent) * (second ? r.sum1 : r.sum0);
    total += masses_[b];
  }
  return total;
}

int32_t Sampler::DrawFromAll(const Row& row, double u) {
  const double target = u * TotalMass(row, row.scale, row.second);
  double before = 0;
  int64_t block = -1;
  for (int64_t b = 0; b < blocks_; ++b) {
    if (masses_[b] == 0) continue;
    block = b;  // the last block with a mass, should rounding pass them all
    if (before + masses_[b] > target) break;
    before += masses_[b];
  }
  const int64_t end = std::min((block + 1) * kSampleBlock, vocab_size_);
  int64_t last = -1;
  for (int64_t id = block * kSampleBlock; id < end; ++id) {
    const double weight = Weight((static_cast<double>(row.x[id]) - row.max) * row.scale);
    if (weight == 0) continue;
    last = id;
    before += weight;
    if (before > target) break;
  }
  CUVIL_CHECK(last >= 0, "a block with a mass has a token with a weight");
  return static_cast<int32_t>(last);
}

// Appends the tokens with from <= x < below. Every column of a block is noted and the end moves
// only past those that belong: on a flat distribution a branch would be guessed wrong half the
// time.
void Sampler::Collect(const Row& row, float from, float below) {
  int32_t found[kSampleBlock];
  for (int64_t b = 0; b < blocks_; ++b) {
    if (row.blocks[b].max < from) continue;
    const int64_t begin = b * kSampleBlock;
    const int32_t columns =
        static_cast<int32_t>(std::min<int64_t>(kSampleBlock, vocab_size_ - begin));
    const float* const x = row.x + begin;
    int32_t count = 0;
    for (int32_t i = 0; i < columns; ++i) {
      found[count] = i;
      count += (x[i] >= from) & (x[i] < below);
    }
    for (int32_t i = 0; i < count; ++i) {
      candidates_.push_back({x[found[i]], static_cast<int32_t>(begin) + found[i], 0});
    }
  }
}

// Makes candidates_ the k of the largest rank that are at least `floor`, in no order.
void Sampler::CollectTop(const Row& row, int64_t k, float floor) {
  candidates_.clear();
  if (k <= blocks_) {
    // k blocks reach the k-th largest block maximum, so the k largest logits do.
    maxima_.resize(blocks_);
    for (int64_t b = 0; b < blocks_; ++b) maxima_[b] = row.blocks[b].max;
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(),
                     std::greater<float>());
    Collect(row, std::max({maxima_[k - 1], floor, kLowest}), kInf);
  } else {
    float below = kInf;
    for (double reach = kFirstReach; below > floor; reach *= 2) {
      float from = reach > kLastReach ? kLowest : RoundUp(row.max - reach / row.scale);
      from = std::max(from, floor);
      Collect(row, from, below);
      if (static_cast<int64_t>(candidates_.size()) >= k) break;
      below = from;
    }
  }
  if (static_cast<int64_t>(candidates_.size()) > k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + k, candidates_.end(), kByRank);
    candidates_.resize(k);
  }
}

void Sampler::WeighCandidates(const Row& row, size_t from) {
  for (size_t i = from; i < candidates_.size(); ++i) {
    Candidate& c = candidates_[i];
    c.weight = Weight((static_cast<double>(c.x) - row.max) * row.scale);
  }
}

// Makes candidates_ a run of the largest that holds at least `share` of the row's mass, weighed.
void Sampler::CollectShare(const Row& row, double share) {
  candidates_.clear();
  const double wanted = share * TotalMass(row, row.scale, row.second);
  double mass = 0;
  float below = kInf;
  for (double reach = kFirstReach; mass < wanted && below > kLowest; reach *= 2) {
    const float from = reach > kLastReach ? kLowest : RoundUp(row.max - reach / row.scale);
    const size_t had = candidates_.size();
    Collect(row, from, below);
    WeighCandidates(row, had);
    for (size_t i = had; i < candidates_.size(); ++i) mass += candidates_[i].weight;
    below = from;
  }
}

// The length of the shortest run of the largest among candidates_[0, size) whose weights add up to
// at least `mass`, at most `size`; reorders so that the run comes first with its smallest last.
size_t Sampler::RunWithMass(size_t size, double mass) {
  const auto begin = candidates_.begin();
  size_t low = 0, high = size;
  double before = 0;  // weight of [0, low)
  while (high - low > kSortMax) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(begin + low, begin + middle, begin + high, kByRank);
    double left = 0;
    for (size_t i = low; i < middle; ++i) left += candidates_[i].weight;
    if (before + left >= mass) {
      high = middle;
    } else {
      before += left;
      low = middle;
    }
  }
  std::sort(begin + low, begin + high, kByRank);
  while (low < high) {
    before += candidates_[low++].weight;
    if (before >= mass) break;
  }
  return low;
}

int32_t Sampler::DrawFromKept(const Row& row, const SamplingParams& p, double u) {
  const bool top_k = p.top_k > 0 && p.top_k < vocab_size_;
  const float floor = p.min_p > 0 ? RoundUp(row.max + std::log(p.min_p) / row.scale) : kLowest;
  double wanted = -1;  // weight that top_p keeps, when known before the candidates
  if (top_k) {
    CollectTop(row, p.top_k, floor);
    WeighCandidates(row, 0);
  } else if (p.min_p > 0) {
    candidates_.clear();
    Collect(row, floor, kInf);
    WeighCandidates(row, 0);
  } else {
    CollectShare(row, p.top_p);
    double total = 0;
    for (const double mass : masses_) total += mass;
    wanted = p.top_p * total;
  }
  const auto weight_of = [&](size_t size) {
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += candidates_[i].weight;
    return sum;
  };
  size_t kept = candidates_.size();
  CUVIL_CHECK(kept > 0, "the largest logit is always kept");
  if (p.top_p < 1) {
    if (wanted < 0) wanted = p.top_p * weight_of(kept);
    kept = RunWithMass(kept, wanted);
  }
  const size_t run = RunWithMass(kept, u * weight_of(kept));
  return candidates_[run - 1].id;
}

void Sampler::FillLogprobs(const Row& row, int count, SampledToken& token) {
  const double log_total = row.max + std::log(TotalMass(row, 1, false));
  token.logprob = row.x[token.id] - log_total;
  if (count == 0) return;
  Row unscaled = row;
  unscaled.scale = 1;
  CollectTop(unscaled, count, kLowest);
  std::sort(candidates_.begin(), candidates_.end(), kByRank);
  for (const Candidate& c : candidates_) token.top.emplace_back(c.id, c.x - log_total);
}

}  // namespace cuvil::engine
