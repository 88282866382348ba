#include "scheduler/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "scheduler/planner.h"
#include "scheduler/sequence_state.h"

namespace cuvil::scheduler {

Scheduler::Scheduler(const Options& options)
    : options_(options),
      cache_({.pages = options.pages,
              .page_tokens = options.page_tokens,
              .prefix_cache = options.prefix_cache},
             options.prefix_hash_mask),
      service_time_(options.expected_new_tokens) {
  CUVIL_CHECK(Validate(options).ok(), Validate(options).message());
}

Scheduler::~Scheduler() = default;

const Scheduler::Sequence& Scheduler::Get(SequenceId id) const {
  const auto it = sequences_.find(id.value);
  CUVIL_CHECK(it != sequences_.end(), "the sequence has ended");
  return *it->second;
}

Scheduler::Sequence& Scheduler::Get(SequenceId id) {
  return const_cast<Sequence&>(static_cast<const Scheduler*>(this)->Get(id));
}

StepPlan Scheduler::Plan(int64_t now_us) const {
  CUVIL_CHECK(!in_flight_, "one step at a time");
  return Planner(*this, now_us).Make();
}

absl::Status Scheduler::Commit(const StepPlan& plan) {
  CUVIL_CHECK(!in_flight_ && plan.version == version_, "the plan is of an older state");
  if (options_.reserve_hook && plan.new_pages > 0) {
    RETURN_IF_ERROR(options_.reserve_hook(plan.new_pages));
  }
  // Found prefixes first: what follows may evict pages that nobody owns.
  for (const Admission& admission : plan.admit) Admit(admission, plan.now_us);
  for (const SequenceId id : plan.expire) {
    ended_.push_back(End(&Get(id), EndReason::kDeadline,
                         absl::DeadlineExceededError("the request's deadline has passed")));
  }
  for (const SequenceId id : plan.guarantee) {
    Sequence& s = Get(id);
    s.guaranteed = true;
    guaranteed_pages_ += s.worst_pages;
  }
  for (const SequenceId id : plan.preempt) {
    Sequence& s = Get(id);
    ++s.stats.preemptions;
    ++stats_.preemptions;
    Requeue(&s);
  }
  for (const Work& work : plan.works) {
    Sequence& s = Get(work.id);
    s.in_flight = true;
    cache_.Reserve(&s.pages, work.end());
  }
  in_flight_ = true;
  committed_ = version_++;
  return absl::OkStatus();
}

void Scheduler::Admit(const Admission& admission, int64_t now_us) {
  Sequence& s = Get(admission.id);
  waiting_.erase(s.id.value);
  running_.push_back(s.id.value);
  s.running = true;
  ++admissions_;
  cache_.Attach(admission.match, static_cast<int64_t>(s.tokens.size()), &s.pages);
  s.guaranteed = admission.guaranteed;
  if (s.guaranteed) guaranteed_pages_ += s.worst_pages;
  if (s.started) return;
  s.started = true;
  --queue_requests_;
  queue_tokens_ -= s.prompt_tokens;
  queue_rows_ -= s.queued_rows;
  s.stats.scheduled_us = now_us;
  s.stats.cached_tokens = admission.match.tokens;
  fair_.Charge(s.tenant, s.prompt_tokens - admission.match.tokens);
}

void Scheduler::Requeue(Sequence* s) {
  s->stats = sequence_stats(s->id);
  cache_.Release(&s->pages);
  std::erase(running_, s->id.value);
  waiting_.insert(s->id.value);
  s->running = false;
  if (std::exchange(s->guaranteed, false)) guaranteed_pages_ -= s->worst_pages;
}

std::vector<Ended> Scheduler::Apply(const StepPlan& plan, const StepResult& result,
                                    int64_t now_us) {
  CUVIL_CHECK(in_flight_ && plan.version == committed_, "only the committed plan is applied");
  CUVIL_CHECK(!result.status.ok() || result.works.size() == plan.works.size(),
              "a result for each work");
  in_flight_ = false;
  ++version_;
  if (!plan.works.empty()) ++stats_.steps;
  if (!result.status.ok()) {
    ++stats_.steps_failed;
    for (const Work& work : plan.works) Fail(&Get(work.id), result.status);
    return std::exchange(ended_, {});
  }
  if (!plan.works.empty()) {
    step_time_.Add({plan.rows, plan.keys}, result.elapsed_us);
    if (queue_requests_ > 0) service_time_.AddSaturatedStep(plan.rows, now_us - plan.now_us);
  }
  for (size_t i = 0; i < plan.works.size(); ++i) {
    ApplyWork(plan.works[i], result.works[i], now_us);
  }
  return std::exchange(ended_, {});
}

void Scheduler::Fail(Sequence* s, const absl::Status& status) {
  s->in_flight = false;
  if (s->abort) {
    ended_.push_back(End(s, EndReason::kAborted, absl::CancelledError("the request was aborted")));
  } else if (++s->stats.retries > options_.retries_max) {
    ended_.push_back(End(s, EndReason::kError, status));
  } else {
    ++stats_.retries;
    Requeue(s);
  }
}

void Scheduler::ApplyWork(const Work& work, const WorkResult& result, int64_t now_us) {
  Sequence& s = Get(work.id);
  s.in_flight = false;
  if (!result.status.ok()) {
    ended_.push_back(End(&s, EndReason::kError, result.status));
    return;
  }
  cache_.Advance(&s.pages, s.tokens, work.end());
  (work.role == Role::kDecode ? stats_.decode_rows : stats_.prefill_rows) +=
      static_cast<int64_t>(work.tokens.size());
  s.outputs_done = std::max(s.outputs_done, std::min(work.end(), s.prompt_tokens));
  if (s.abort) {
    ended_.push_back(End(&s, EndReason::kAborted, absl::CancelledError("the request was aborted")));
    return;
  }
  if (s.pending() > 0) return;
  if (!s.prompt_done) s.stats.prompt_done_us = now_us;
  s.prompt_done = true;
  if (work.sample) {
    s.tokens.push_back(result.token);
    if (s.stats.new_tokens++ == 0) s.stats.first_token_us = now_us;
    fair_.Charge(s.tenant, 1);
  }
  const bool finished = work.sample && result.finish;
  if (!finished && static_cast<int64_t>(s.tokens.size()) < s.tokens_max) return;
  if (s.generates()) service_time_.AddEnded(s.stats, s.max_new_tokens(), now_us);
  ended_.push_back(End(&s, finished ? EndReason::kFinished : EndReason::kLength, absl::OkStatus()));
}

std::optional<Ended> Scheduler::Abort(SequenceId id) {
  if (!contains(id)) return std::nullopt;
  Sequence& s = Get(id);
  if (s.in_flight) {
    s.abort = true;
    return std::nullopt;
  }
  ++version_;
  return End(&s, EndReason::kAborted, absl::CancelledError("the request was aborted"));
}

Ended Scheduler::End(Sequence* s, EndReason reason, absl::Status status) {
  Ended ended = {.id = s->id, .reason = reason, .status = std::move(status)};
  ended.stats = sequence_stats(s->id);
  cache_.Release(&s->pages);
  if (s->guaranteed) guaranteed_pages_ -= s->worst_pages;
  std::erase(running_, s->id.value);
  waiting_.erase(s->id.value);
  if (!s->started) {
    --queue_requests_;
    queue_tokens_ -= s->prompt_tokens;
    queue_rows_ -= s->queued_rows;
  }
  if (s->deadline_us > 0) deadlines_.erase({s->deadline_us, s->id.value});
  fair_.Leave(s->tenant);
  ++stats_.ended;
  ++(reason == EndReason::kFinished   ? stats_.finished
     : reason == EndReason::kLength   ? stats_.length
     : reason == EndReason::kAborted  ? stats_.aborted
     : reason == EndReason::kDeadline ? stats_.expired
                                      : stats_.failed);
  sequences_.erase(s->id.value);
  return ended;
}

std::optional<int64_t> Scheduler::NextWakeup() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

const std::vector<int32_t>& Scheduler::pages(SequenceId id) const { return Get(id).pages.pages; }
const std::vector<int32_t>& Scheduler::tokens(SequenceId id) const { return Get(id).tokens; }
const kvcache::TrimPolicy& Scheduler::trim(SequenceId id) const { return Get(id).pages.trim; }

SequenceStats Scheduler::sequence_stats(SequenceId id) const {
  const Sequence& s = Get(id);
  SequenceStats stats = s.stats;
  // Holes come back when a preempted sequence does: the most at once is what was dropped.
  stats.trimmed_tokens = std::max(stats.trimmed_tokens, s.pages.holes * options_.page_tokens);
  return stats;
}

Stats Scheduler::stats() const {
  Stats stats = stats_;
  stats.waiting = static_cast<int64_t>(waiting_.size());
  stats.running = static_cast<int64_t>(running_.size());
  stats.waiting_tokens = queue_tokens_;
  stats.waiting_rows = queue_rows_;
  stats.pages_total = cache_.pool().total();
  stats.pages_owned = cache_.pool().owned();
  stats.pages_cached = cache_.pool().cached();
  stats.pages_free = cache_.pool().free();
  stats.guaranteed_pages = guaranteed_pages_;
  stats.cache = cache_.counters();
  return stats;
}

}  // namespace cuvil::scheduler
