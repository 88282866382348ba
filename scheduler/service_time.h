// ServiceTime: how long sequences wait for their start and stay until their end, learned from steps
// and from sequences that ended. What a deadline is held against before work is spent on it.
//
// Waiting: the rows that queued sequences will need, over the rows per second that the engine
// serves while sequences wait (in a saturated server what leaves makes room for what comes).
// Staying: the time to the first token, then new tokens times the time between two. Plain data;
// copies are cheap.
#pragma once

#include <cstdint>

#include "scheduler/sequence.h"

namespace cuvil::scheduler {

class ServiceTime {
 public:
  // `expected_new_tokens`: of a sequence, until ended ones have taught better.
  explicit ServiceTime(int64_t expected_new_tokens = 0)
      : new_tokens_(static_cast<double>(expected_new_tokens)) {}

  // A step of `rows` rows took `elapsed_us`, with its planning and sampling, while others waited.
  void AddSaturatedStep(int64_t rows, int64_t elapsed_us);
  // A sequence that generates has come to its natural end. `max_new_tokens`: its own limit, or
  // below 0.
  void AddEnded(const SequenceStats& stats, int64_t max_new_tokens, int64_t now_us);

  // Expected; `max_new_tokens` below 0: no limit of its own.
  int64_t NewTokens(int64_t max_new_tokens) const;
  // Rows that a sequence takes in all.
  int64_t Rows(int64_t prompt_tokens, int64_t max_new_tokens) const {
    return prompt_tokens + NewTokens(max_new_tokens);
  }
  // Until everything queued, `rows` together, has started. 0 while no wait was ever seen.
  int64_t WaitUs(int64_t rows) const;
  // From its start to its end, as good as never longer. 0 while nothing has ended.
  int64_t StayUs(int64_t max_new_tokens) const;

 private:
  double MeanStayUs(double new_tokens) const;

  double new_tokens_;              // faded mean
  double used_share_ = 0;          // of their own limits, where they had one; faded mean
  double rows_ = 0, rows_us_ = 0;  // faded sums over saturated steps
  double first_token_us_ = 0, inter_token_us_ = 0, deviation_us_ = 0;  // faded means
  bool ended_ = false;
};

}  // namespace cuvil::scheduler
