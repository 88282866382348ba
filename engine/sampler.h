// Sampler: chooses tokens from rows of logits with a small compiled program of its own
// (compiler/kernel/template_sample.h): the kernel reads the vocabulary, the host only block
// statistics and the few blocks that can matter. A result depends on the row, the parameters, the
// tokens so far and the output index, never on what else is sampled, on worker count or on the
// target's width.
//
// In order, all per request:
//   1. logit_bias: x += bias.
//   2. Penalties, once for each distinct token so far: x = x > 0 ? x / repetition : x * repetition;
//      x -= presence + occurrences * frequency. Each result is rounded to f32.
//   3. temperature 0: the largest x, lowest id among equals; the rest is not looked at.
//      Otherwise token weights are exp((x - max) / temperature).
//   4. top_k keeps that many of the largest x (lowest id among equals); min_p then keeps weights
//      of at least min_p; top_p then keeps the shortest run of the largest with at least that
//      share of the weight still there.
//   5. The draw walks the tokens until their running weight passes u times the weight kept: in id
//      order when step 4 is off, else from the largest down. u is UniformDraw(seed, output index).
//
// Sums are accurate to about 1e-6, so a token can differ from exact arithmetic only when u or top_p
// is that close to a boundary. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/kernel/template_sample.h"
#include "engine/sampling.h"
#include "runtime/executor.h"

namespace cuvil::engine {

class Model;

// In [0, 1), 53 bits, from Philox4x32-10 with key `seed` and counter `index`: no state to carry.
double UniformDraw(uint64_t seed, int64_t index);

// How often each token occurred in one sequence; what the penalties look at.
class TokenCounts {
 public:
  TokenCounts() = default;
  explicit TokenCounts(absl::Span<const int32_t> tokens) {
    for (const int32_t token : tokens) Add(token);
  }
  void Add(int32_t token) { ++counts_[token]; }
  const absl::flat_hash_map<int32_t, int64_t>& counts() const { return counts_; }

 private:
  absl::flat_hash_map<int32_t, int64_t> counts_;
};

struct SamplerOptions {
  int64_t vocab_size = 0;
  emit::Target target;
  int threads = 1;        // for compiling
  std::string cache_dir;  // empty: no artifact cache
};

struct SampleJob {
  // AlignUp(vocab_size, 64) floats, changed in place: bias, penalties, and -inf after the
  // vocabulary.
  float* row = nullptr;
  const SamplingParams* params = nullptr;  // CheckSampling accepts them
  const TokenCounts* so_far = nullptr;     // null: none
  int64_t output_index = 0;                // of the token within its answer
};

class Sampler {
 public:
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(const SamplerOptions& options);
  // For the model's vocabulary, target and threads.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(const Model& model,
                                                         const std::string& cache_dir = "");
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // One result a job, in order. InternalError for a row with a NaN or without a finite largest
  // value; the others are not affected. Rows must not overlap. `logprob` and `top` are filled when
  // params.logprobs >= 0; `top` leaves out tokens with a logit of -inf.
  std::vector<absl::StatusOr<SampledToken>> SampleRows(runtime::Executor& executor,
                                                       absl::Span<const SampleJob> jobs);
  absl::StatusOr<SampledToken> Sample(runtime::Executor& executor, const SampleJob& job);
  // The same with the tokens so far as a list, which is counted when a penalty is on.
  absl::StatusOr<SampledToken> Sample(runtime::Executor& executor, float* row,
                                      const SamplingParams& params,
                                      absl::Span<const int32_t> history, int64_t output_index);

  int64_t vocab_size() const { return vocab_size_; }
  int kernels_emitted() const { return kernels_emitted_; }  // 0 when the cache had them
  // One warning for people; empty when all is well.
  const std::string& cache_note() const { return cache_note_; }

 private:
  struct Candidate {
    float x;
    int32_t id;
    double weight;
  };
  // A row with its statistics, and what the draw needs.
  struct Row {
    const float* x = nullptr;
    const kernel::SampleRecord* blocks = nullptr;
    float max = 0;
    double scale = 1;     // 1 / temperature
    bool second = false;  // whether sum1 is the one of the temperature, sum0 that of scale 1
  };
  // Which sums a job needs, as launch scalars.
  struct Sums {
    int64_t count = 0;
    float scales[2] = {1, 1};
  };

  Sampler() = default;
  void Edit(const SampleJob& job) const;
  Sums SumsFor(const SamplingParams& params) const;
  void Bind(const SampleJob& job, kernel::SampleRecord* stats, runtime::BoundLaunch& launch) const;
  absl::StatusOr<SampledToken> Finish(const SampleJob& job, const kernel::SampleRecord* stats);

  double TotalMass(const Row& row, double scale, bool second);
  int32_t Greedy(const Row& row) const;
  int32_t DrawFromAll(const Row& row, double u);
  int32_t DrawFromKept(const Row& row, const SamplingParams& params, double u);
  void FillLogprobs(const Row& row, int count, SampledToken& token);

  void Collect(const Row& row, float from, float below);
  void CollectTop(const Row& row, int64_t k, float floor);
  void CollectShare(const Row& row, double share);
  void WeighCandidates(const Row& row, size_t from);
  size_t RunWithMass(size_t size, double mass);

  int64_t vocab_size_ = 0, columns_ = 0, blocks_ = 0;
  int kernels_emitted_ = 0;
  std::string cache_note_;
  std::shared_ptr<const emit::CodeImage> code_;
  emit::KernelFn kernel_ = nullptr;

  // Reused by every call.
  std::vector<runtime::BoundLaunch> launches_;
  std::vector<kernel::SampleRecord> stats_;
  std::vector<Candidate> candidates_;
  std::vector<float> maxima_;
  std::vector<double> masses_;
};

}  // namespace cuvil::engine
