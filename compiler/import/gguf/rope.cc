#include "compiler/import/gguf/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/blocks.h"
#include "compiler/import/gguf/tensors.h"

namespace cuvil::gguf {
namespace {

absl::Status BadNumber(const std::string& key, double value, const char* wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("metadata ", Quoted(key), " is ", value, "; it must be ", wanted));
}

absl::StatusOr<double> ReadPositive(const File& file, const std::string& key, double fallback) {
  ASSIGN_OR_RETURN(const double value, file.FloatOr(key, fallback));
  // Far outside any base or factor in use, and far inside what keeps every frequency finite.
  if (!(value >= 1e-12 && value <= 1e12)) return BadNumber(key, value, "between 1e-12 and 1e12");
  return value;
}

absl::Status ReadScaling(const File& file, const std::string& prefix, int64_t context_length,
                         RopeConfig* out) {
  // Files from before scaling had types give only a factor, which means linear.
  ASSIGN_OR_RETURN(const std::string_view type, file.StringOr(prefix + "scaling.type", "linear"));
  const std::string factor_key =
      file.Has(prefix + "scaling.factor") ? prefix + "scaling.factor" : prefix + "scale_linear";
  ASSIGN_OR_RETURN(const double factor, file.FloatOr(factor_key, 0));
  if (type == "none" || (factor == 0 && type == "linear")) return absl::OkStatus();
  if (type != "linear" && type != "yarn") {
    return absl::UnimplementedError(absl::StrCat("rope scaling type ", Quoted(type),
                                                 " is not supported; supported are none, linear, "
                                                 "yarn and the rope_freqs.weight tensor"));
  }
  ASSIGN_OR_RETURN(out->factor, ReadPositive(file, factor_key, 0));
  out->scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kYarn;
  if (type == "linear") return absl::OkStatus();
  const std::string context_key = prefix + "scaling.original_context_length";
  ASSIGN_OR_RETURN(out->original_context, file.IntOr(context_key, context_length));
  if (out->original_context < 1) {
    return BadNumber(context_key, static_cast<double>(out->original_context), "at least 1");
  }
  ASSIGN_OR_RETURN(out->beta_fast, ReadPositive(file, prefix + "scaling.yarn_beta_fast", 32));
  ASSIGN_OR_RETURN(out->beta_slow, ReadPositive(file, prefix + "scaling.yarn_beta_slow", 1));
  ASSIGN_OR_RETURN(out->ext_factor, ReadPositive(file, prefix + "scaling.yarn_ext_factor", 1));
  const char* name =
      file.Has(prefix + "scaling.attn_factor") ? "scaling.attn_factor" : "scaling.yarn_attn_factor";
  ASSIGN_OR_RETURN(out->attn_factor, ReadPositive(file, prefix + name, 1));
  return absl::OkStatus();
}

absl::Status ReadDivisors(const File& file, RopeConfig* out) {
  const Tensor* tensor = file.FindTensor(kRopeDivisors);
  if (tensor == nullptr) return absl::OkStatus();
  if (tensor->dtype != DType::kF32 || tensor->rank != 1 || tensor->dims[0] != out->dim / 2) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(kRopeDivisors), " is ",
                                                   Describe(*tensor), ", but it must be f32 [",
                                                   out->dim / 2, "]"));
  }
  out->divisors.resize(tensor->dims[0]);
  DecodeRow(DType::kF32, tensor->data.data(), tensor->dims[0], out->divisors.data());
  for (const float divisor : out->divisors) {
    if (!(divisor > 0 && std::isfinite(divisor))) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(kRopeDivisors), " holds ",
                                                     divisor, "; divisors must be above 0"));
    }
  }
  return absl::OkStatus();
}

// The pair index at which a frequency turns `turns` times over the original context.
double YarnPair(const RopeConfig& rope, double turns) {
  const double context = static_cast<double>(rope.original_context);
  return static_cast<double>(rope.dim) * std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.base));
}

// 1 for fast pairs, which keep their frequency; 0 for slow pairs, which are stretched.
double YarnKeep(const RopeConfig& rope, int64_t pair) {
  const double low = std::max(0.0, std::floor(YarnPair(rope, rope.beta_fast)));
  const double high =
      std::min(static_cast<double>(rope.dim - 1), std::ceil(YarnPair(rope, rope.beta_slow)));
  const double ramp = (static_cast<double>(pair) - low) / std::max(0.001, high - low);
  return (1 - std::clamp(ramp, 0.0, 1.0)) * rope.ext_factor;
}

}  // namespace

absl::StatusOr<RopeConfig> ReadRope(const File& file, const Arch& arch, const ModelConfig& config) {
  const std::string prefix = absl::StrCat(arch.name, ".rope.");
  RopeConfig rope;
  rope.kind = arch.rope;
  ASSIGN_OR_RETURN(rope.dim, file.IntOr(prefix + "dimension_count", config.head_dim));
  if (rope.dim < 2 || rope.dim > config.head_dim || rope.dim % 2 != 0) {
    return BadNumber(prefix + "dimension_count", static_cast<double>(rope.dim),
                     "even and at most the head length");
  }
  ASSIGN_OR_RETURN(rope.base, ReadPositive(file, prefix + "freq_base", 10000));
  const double local = arch.local_rope_base > 0 ? arch.local_rope_base : rope.base;
  ASSIGN_OR_RETURN(rope.local_base, ReadPositive(file, prefix + "freq_base_swa", local));
  // A base of 1 or below has no slow pairs, and YaRN divides by its logarithm.
  if (rope.base <= 1) return BadNumber(prefix + "freq_base", rope.base, "above 1");
  if (rope.local_base <= 1) return BadNumber(prefix + "freq_base_swa", rope.local_base, "above 1");
  RETURN_IF_ERROR(ReadScaling(file, prefix, config.context_length, &rope));
  RETURN_IF_ERROR(ReadDivisors(file, &rope));
  return rope;
}

std::vector<double> RopeFrequencies(const ModelConfig& config, int64_t layer) {
  const RopeConfig& rope = config.rope;
  const bool local = config.is_local(layer);
  std::vector<double> out(rope.dim / 2);
  for (int64_t i = 0; i < rope.dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rope.dim);
    double frequency = std::pow(local ? rope.local_base : rope.base, exponent);
    if (!local && !rope.divisors.empty()) frequency /= static_cast<double>(rope.divisors[i]);
    if (!local && rope.scaling == RopeScaling::kLinear) frequency /= rope.factor;
    if (!local && rope.scaling == RopeScaling::kYarn) {
      const double keep = YarnKeep(rope, i);
      frequency = frequency / rope.factor * (1 - keep) + frequency * keep;
    }
    out[i] = frequency;
  }
  return out;
}

double RopeMagnitude(const ModelConfig& config, int64_t layer) {
  if (config.rope.scaling != RopeScaling::kYarn || config.is_local(layer)) return 1;
  return config.rope.attn_factor * (1 + 0.1 * std::log(config.rope.factor));
}

}  // namespace cuvil::gguf
