#include "engine/sampling.h"

namespace cuvil::engine {
namespace {

// Beyond 100 the distribution is flat whatever the model says.
constexpr double kTemperatureMax = 100;
// A penalty of 100 already forbids (or forces) every repetition.
constexpr double kRepetitionMax = 100;
constexpr double kPenaltyMax = 2;
constexpr double kBiasMax = 100;
constexpr int kLogprobsMax = 20;

// Written so that NaN fails.
absl::Status InRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; give a number from ", low, " to ", high));
}

absl::Status Above0(const char* name, double value, double high) {
  if (value > 0 && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; give a number above 0, at most ", high));
}

}  // namespace

absl::Status CheckSampling(const SamplingParams& p, int64_t vocab_size) {
  RETURN_IF_ERROR(InRange("temperature", p.temperature, 0, kTemperatureMax));
  RETURN_IF_ERROR(Above0("top_p", p.top_p, 1));
  if (p.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is ", p.top_k, "; give 0 for all tokens, or a count of at least 1"));
  }
  RETURN_IF_ERROR(InRange("min_p", p.min_p, 0, 1));
  RETURN_IF_ERROR(Above0("repetition_penalty", p.repetition_penalty, kRepetitionMax));
  RETURN_IF_ERROR(InRange("presence_penalty", p.presence_penalty, -kPenaltyMax, kPenaltyMax));
  RETURN_IF_ERROR(InRange("frequency_penalty", p.frequency_penalty, -kPenaltyMax, kPenaltyMax));
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "logit_bias names token ", id, "; the vocabulary has ids 0 to ", vocab_size - 1));
    }
    if (!(bias >= -kBiasMax && bias <= kBiasMax)) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias of token ", id, " is ", bias,
                                                     "; give a number from ", -kBiasMax, " to ",
                                                     kBiasMax));
    }
  }
  if (p.logprobs < -1 || p.logprobs > kLogprobsMax) {
    return absl::InvalidArgumentError(absl::StrCat("logprobs is ", p.logprobs, "; give 0 to ",
                                                   kLogprobsMax, " alternatives, or -1 for none"));
  }
  return absl::OkStatus();
}

}  // namespace cuvil::engine
