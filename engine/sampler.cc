#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "compiler/driver/cache.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/compile_kernels.h"
#include "engine/model.h"

namespace cuvil::engine {
namespace {

using kernel::kSampleBlock;
using kernel::SampleRecord;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Largest 1/temperature that still multiplies finite differences without overflow to NaN.
constexpr double kScaleMax = 1e30;
// A penalty moves a logit no further: any of them is accepted, and none may make an infinity.
constexpr double kPenalizedMax = 1e30;

bool Penalizes(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

}  // namespace

double UniformDraw(uint64_t seed, int64_t index) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t c[4] = {static_cast<uint32_t>(index),
                   static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return static_cast<double>(((uint64_t{c[0]} << 32) | c[1]) >> 11) * 0x1p-53;
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(const SamplerOptions& options) {
  CUVIL_CHECK(options.vocab_size > 0, "a sampler has a vocabulary");
  std::unique_ptr<Sampler> s(new Sampler());
  s->vocab_size_ = options.vocab_size;
  s->columns_ = AlignUp<int64_t>(options.vocab_size, kernel::kSampleStep);
  s->blocks_ = CeilDiv<int64_t>(s->columns_, kSampleBlock);
  std::unique_ptr<driver::ArtifactCache> cache;
  if (!options.cache_dir.empty()) {
    auto opened = driver::ArtifactCache::Open(options.cache_dir);
    if (opened.ok()) {
      cache = *std::move(opened);
    } else {
      s->cache_note_ = std::string(opened.status().message());
    }
  }
  constexpr char kName[] = "sample_blocks";
  const kernel::Kernel blocks = kernel::BuildSampleBlocks(kName, driver::MachineOf(options.target));
  ASSIGN_OR_RETURN(driver::CompiledKernels compiled,
                   driver::CompileKernels({&blocks, 1}, {.target = options.target,
                                                         .threads = options.threads,
                                                         .cache = cache.get()}));
  if (!compiled.cache_note.empty()) s->cache_note_ = std::move(compiled.cache_note);
  s->kernels_emitted_ = compiled.emitted;
  s->code_ = std::move(compiled.code);
  s->kernel_ = s->code_->Function(kName);
  return s;
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(const Model& model,
                                                         const std::string& cache_dir) {
  return Create({.vocab_size = model.config().vocab_size,
                 .target = model.target(),
                 .threads = model.threads(),
                 .cache_dir = cache_dir});
}

std::vector<absl::StatusOr<SampledToken>> Sampler::SampleRows(runtime::Executor& executor,
                                                              absl::Span<const SampleJob> jobs) {
  if (launches_.size() < jobs.size()) {
    launches_.resize(jobs.size());
    stats_.resize(jobs.size() * blocks_);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    Edit(jobs[i]);
    Bind(jobs[i], &stats_[i * blocks_], launches_[i]);
  }
  executor.Run(absl::MakeConstSpan(launches_).first(jobs.size()));
  std::vector<absl::StatusOr<SampledToken>> results;
  results.reserve(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    results.push_back(Finish(jobs[i], &stats_[i * blocks_]));
  }
  return results;
}

absl::StatusOr<SampledToken> Sampler::Sample(runtime::Executor& executor, const SampleJob& job) {
  return std::move(SampleRows(executor, {&job, 1})[0]);
}

absl::StatusOr<SampledToken> Sampler::Sample(runtime::Executor& executor, float* row,
                                             const SamplingParams& params,
                                             absl::Span<const int32_t> history,
                                             int64_t output_index) {
  TokenCounts counts;
  if (Penalizes(params)) counts = TokenCounts(history);
  return Sample(executor, SampleJob{row, &params, &counts, output_index});
}

void Sampler::Edit(const SampleJob& job) const {
  const SamplingParams& p = *job.params;
  float* x = job.row;
  std::fill(x + vocab_size_, x + columns_, -kInf);
  for (const auto& [id, bias] : p.logit_bias) {
    CUVIL_CHECK(id >= 0 && id < vocab_size_, "CheckSampling accepted the bias");
    x[id] = static_cast<float>(x[id] + bias);
  }
  if (job.so_far == nullptr || !Penalizes(p)) return;
  for (const auto& [id, count] : job.so_far->counts()) {
    if (id < 0 || id >= vocab_size_) continue;
    double v = x[id];
    if (!std::isfinite(v)) continue;  // forbidden, or the model's mistake: not for us to hide
    v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    v = v - p.presence_penalty - static_cast<double>(count) * p.frequency_penalty;
    x[id] = static_cast<float>(std::clamp(v, -kPenalizedMax, kPenalizedMax));
  }
}

Sampler::Sums Sampler::SumsFor(const SamplingParams& p) const {
  Sums sums;
  if (p.logprobs >= 0) ++sums.count;
  const bool all = p.top_k == 0 || p.top_k >= vocab_size_;
  if (p.temperature == 0 || !all || p.min_p > 0) return sums;  // kept tokens are summed by the host
  const float scale = static_cast<float>(std::min(1 / p.temperature, kScaleMax));
  if (sums.count == 0 || scale != 1) sums.scales[sums.count++] = scale;
  return sums;
}

void Sampler::Bind(const SampleJob& job, SampleRecord* stats, runtime::BoundLaunch& launch) const {
  const Sums sums = SumsFor(*job.params);
  launch.fn = kernel_;
  launch.tiles = CeilDiv<int64_t>(blocks_, kernel::kSampleBlocksPerTile);
  launch.buffers.assign({reinterpret_cast<uint8_t*>(job.row), reinterpret_cast<uint8_t*>(stats)});
  launch.scalars.assign({columns_, sums.count, std::bit_cast<int32_t>(sums.scales[0]),
                         std::bit_cast<int32_t>(sums.scales[1])});
}

absl::StatusOr<SampledToken> Sampler::Finish(const SampleJob& job, const SampleRecord* stats) {
  const SamplingParams& p = *job.params;
  Row row{.x = job.row, .blocks = stats, .max = -kInf};
  for (int64_t b = 0; b < blocks_; ++b) {
    if (stats[b].has_nan != 0) {
      return absl::InternalError(absl::StrCat("the model gave a NaN among logits ",
                                              b * kSampleBlock, " to ",
                                              std::min((b + 1) * kSampleBlock, vocab_size_) - 1,
                                              "; the file may be damaged, check it"));
    }
    row.max = std::max(row.max, stats[b].max);
  }
  if (!std::isfinite(row.max)) {
    return absl::InternalError(absl::StrCat("the largest logit is ", row.max,
                                            ", so no token can be chosen; check the model file"));
  }
  SampledToken token;
  if (p.temperature == 0) {
    token.id = Greedy(row);
  } else {
    // As the kernel has it, so that its sums and the host's weights agree.
    row.scale = static_cast<float>(std::min(1 / p.temperature, kScaleMax));
    const double u = UniformDraw(p.seed, job.output_index);
    const bool all = (p.top_k == 0 || p.top_k >= vocab_size_) && p.min_p == 0 && p.top_p == 1;
    row.second = p.logprobs >= 0 && row.scale != 1;
    token.id = all ? DrawFromAll(row, u) : DrawFromKept(row, p, u);
  }
  if (p.logprobs >= 0) FillLogprobs(row, p.logprobs, token);
  return token;
}

}  // namespace cuvil::engine
