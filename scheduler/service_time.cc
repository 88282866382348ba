#include "scheduler/service_time.h"

#include <algorithm>
#include <cmath>

namespace cuvil::scheduler {
namespace {

// A step's weight halves every 138 steps: prefills and decodes alternate, and the rate shall be
// that of whole sequences, which take about a hundred steps.
constexpr double kFade = 0.995;
// Stays beyond the mean that a deadline is held against: with four mean deviations, as in TCP's
// timeout (RFC 6298), hardly any sequence that is started misses it.
constexpr double kDeviations = 4;
// How much one ended sequence moves what is expected of the next.
constexpr double kLearn = 0.1;

}  // namespace

void ServiceTime::AddSaturatedStep(int64_t rows, int64_t elapsed_us) {
  rows_ = rows_ * kFade + static_cast<double>(rows);
  rows_us_ = rows_us_ * kFade + static_cast<double>(std::max<int64_t>(elapsed_us, 1));
}

void ServiceTime::AddEnded(const SequenceStats& s, int64_t max_new_tokens, int64_t now_us) {
  const double stayed = static_cast<double>(now_us - s.scheduled_us);
  if (ended_) {
    const double missed_by = std::abs(stayed - MeanStayUs(static_cast<double>(s.new_tokens)));
    deviation_us_ += kLearn * (missed_by - deviation_us_);
  }
  if (max_new_tokens > 0) {
    const double share = static_cast<double>(s.new_tokens) / static_cast<double>(max_new_tokens);
    used_share_ += kLearn * (share - used_share_);
  }
  new_tokens_ += kLearn * (static_cast<double>(s.new_tokens) - new_tokens_);
  const double first = static_cast<double>(s.first_token_us - s.scheduled_us);
  first_token_us_ = ended_ ? first_token_us_ + kLearn * (first - first_token_us_) : first;
  ended_ = true;
  if (s.new_tokens < 2) return;
  const double between =
      static_cast<double>(now_us - s.first_token_us) / static_cast<double>(s.new_tokens - 1);
  inter_token_us_ =
      inter_token_us_ > 0 ? inter_token_us_ + kLearn * (between - inter_token_us_) : between;
}

int64_t ServiceTime::NewTokens(int64_t max_new_tokens) const {
  const auto expected = static_cast<int64_t>(std::ceil(new_tokens_));
  if (max_new_tokens < 0) return expected;
  const double share = used_share_ * static_cast<double>(max_new_tokens);
  return std::min(max_new_tokens, std::max(expected, static_cast<int64_t>(std::ceil(share))));
}

double ServiceTime::MeanStayUs(double new_tokens) const {
  return first_token_us_ + std::max(0.0, new_tokens - 1) * inter_token_us_;
}

int64_t ServiceTime::WaitUs(int64_t rows) const {
  return rows_ > 0 ? static_cast<int64_t>(static_cast<double>(rows) * rows_us_ / rows_) : 0;
}

int64_t ServiceTime::StayUs(int64_t max_new_tokens) const {
  if (!ended_) return 0;
  return static_cast<int64_t>(MeanStayUs(static_cast<double>(NewTokens(max_new_tokens))) +
                              kDeviations * deviation_us_);
}

}  // namespace cuvil::scheduler
