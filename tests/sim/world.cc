#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>

namespace cuvil::sim {

using scheduler::Ended;
using scheduler::EndReason;
using scheduler::Role;
using scheduler::SequenceId;
using scheduler::StepPlan;
using scheduler::StepResult;
using scheduler::Work;
using scheduler::WorkResult;

namespace {

// Far above what any world needs; more means that it never comes to rest.
constexpr int64_t kStepsMax = 20'000;

template <typename... T>
absl::Status Broken(const T&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

}  // namespace

World::World(uint64_t seed, bool trace, Coverage* coverage)
    : rng_(seed), trace_(trace), coverage_(coverage) {
  MakeOptions();
  MakeTraffic();
  options_.reserve_hook = [this](int64_t) {
    return fail_commit_ ? absl::ResourceExhaustedError("simulated") : absl::OkStatus();
  };
  sched_ = std::make_unique<scheduler::Scheduler>(options_);
  device_ = std::make_unique<ToyDevice>(options_.pages, options_.page_tokens, rng_.Next());
}

absl::Status World::Run() {
  while (arrivals_left_ > 0 || !sched_->idle()) {
    if (++step_ > kStepsMax) return Broken("the world does not come to rest");
    if (step_ == drain_step_) {
      sched_->BeginDrain();
      coverage_->Count("drain");
    }
    RETURN_IF_ERROR(Arrive());
    RETURN_IF_ERROR(Disconnect(false));
    if (rng_.Chance(1)) {
      sched_->DropCached();
      coverage_->Count("drop cached");
    }
    if (rng_.Chance(2)) {  // a new program over the same memory
      device_ = std::make_unique<ToyDevice>(*device_);
      coverage_->Count("swap");
    }
    RETURN_IF_ERROR(Step());
    RETURN_IF_ERROR(CheckWaits());
    now_us_ += rng_.In(0, 50);
  }
  return Finish();
}

absl::Status World::Step() {
  const StepPlan plan = sched_->Plan(now_us_);
  RETURN_IF_ERROR(CheckPlan(plan));
  RETURN_IF_ERROR(CheckAdmissions(plan));
  bool committed = false;
  RETURN_IF_ERROR(CommitOrFail(plan, &committed));
  if (!committed) return absl::OkStatus();
  FollowPlan(plan);
  RETURN_IF_ERROR(sched_->Check());
  RETURN_IF_ERROR(Disconnect(true));

  StepResult result;
  RETURN_IF_ERROR(RunDevice(plan, &result));
  now_us_ += result.elapsed_us;
  RETURN_IF_ERROR(Deliver(plan, result));
  for (const Ended& ended : sched_->Apply(plan, result, now_us_)) RETURN_IF_ERROR(OnEnded(ended));
  RETURN_IF_ERROR(sched_->Check());
  const bool waits_for_clock = plan.idle() && plan.expire.empty() && !sched_->idle();
  if (waits_for_clock) return Broken("nothing runs though ", live_.size(), " sequences are left");
  return absl::OkStatus();
}

absl::Status World::CommitOrFail(const StepPlan& plan, bool* committed) {
  fail_commit_ = step_ < calm_after_ && rng_.Chance(commit_error_percent_) && plan.new_pages > 0;
  const auto snapshot = [&] {
    std::string state;
    for (const int64_t id : live_) {
      absl::StrAppend(&state, id, ":");
      for (const int32_t page : sched_->pages({id})) absl::StrAppend(&state, page, ",");
    }
    const scheduler::Stats s = sched_->stats();
    absl::StrAppend(&state, "|", s.pages_cached, " ", s.pages_free, " ", s.cache.evictions, " ",
                    s.running, " ", s.waiting, " ", s.preemptions, " ", s.ended);
    return state;
  };
  const std::string before = fail_commit_ ? snapshot() : "";
  const absl::Status status = sched_->Commit(plan);
  *committed = status.ok();
  if (status.ok() == fail_commit_) return Broken("commit: ", status.message());
  if (!fail_commit_) return absl::OkStatus();
  coverage_->Count("commit failed");
  if (snapshot() != before) return Broken("a failed commit left traces");
  return sched_->Check();
}

// What the plan does to sequences, as the client sees it.
void World::FollowPlan(const StepPlan& plan) {
  for (const scheduler::Admission& admission : plan.admit) {
    Client& c = Find(admission.id);
    c.running = true;
    ++admissions_;
    coverage_->Count("admitted");
    coverage_->Count(admission.guaranteed ? "guaranteed" : "opportunistic");
    coverage_->Count("cached tokens", admission.match.tokens);
    if (c.ever_ran && admission.match.tokens > 0) coverage_->Count("resumed from cache");
    if (std::ranges::count(admission.match.pages, -1) > 0) coverage_->Count("trimmed hit");
    c.ever_ran = true;
    c.eligible_at = -1;
  }
  coverage_->Count("upgraded", static_cast<int64_t>(plan.guarantee.size()));
  for (const SequenceId id : plan.preempt) {
    Find(id).running = Find(id).decoding = false;
    coverage_->Count("preemptions");
  }
  for (const SequenceId id : plan.expire) {
    coverage_->Count(Find(id).running ? "deadline running" : "deadline waiting");
  }
}

absl::Status World::RunDevice(const StepPlan& plan, StepResult* result) {
  const bool faults = step_ < calm_after_;
  result->elapsed_us = 200 + 20 * plan.rows + rng_.In(0, 20);
  if (faults && rng_.Chance(2)) {
    result->elapsed_us *= 50;
    coverage_->Count("slow step");
  }
  const bool fails = faults && !plan.idle() && rng_.Chance(step_error_percent_);
  for (const Work& work : plan.works) {
    WorkResult& r = result->works.emplace_back();
    RETURN_IF_ERROR(RunWork(work, &r));
    if (faults && rng_.Chance(row_error_percent_)) {
      r.status = absl::InternalError("simulated row error");
      device_->Scribble(sched_->pages(work.id), work.begin, work.end());
      if (!fails) coverage_->Count("row error");
    }
  }
  if (fails) FailStep(plan, result);
  return absl::OkStatus();
}

void World::FailStep(const StepPlan& plan, StepResult* result) {
  result->status = absl::InternalError("simulated device error");
  coverage_->Count("step error");
  for (const Work& work : plan.works) {
    device_->Scribble(sched_->pages(work.id), work.begin, work.end());
  }
}

absl::Status World::RunWork(const Work& work, WorkResult* result) {
  Client& c = Find(work.id);
  auto values = device_->Run(sched_->pages(work.id), c.space, c.trim, work.begin, work.tokens);
  if (!values.ok()) return Broken("sequence ", work.id.value, ": ", values.status().message());
  for (int64_t p = work.begin; p < work.end(); ++p) {
    if ((*values)[p - work.begin] != c.alone.values[p]) {
      return Broken("sequence ", work.id.value, " differs from its run alone at position ", p);
    }
  }
  if (!work.sample) return absl::OkStatus();
  result->token = NextToken(values->back());
  result->finish = result->token == kEndToken;
  return absl::OkStatus();
}

// The client's view of what a step brought, before the scheduler hears of it.
absl::Status World::Deliver(const StepPlan& plan, const StepResult& result) {
  for (size_t i = 0; i < plan.works.size(); ++i) {
    const Work& work = plan.works[i];
    Client& c = Find(work.id);
    if (!result.status.ok()) {
      if (++c.retries > options_.retries_max + 1) {
        return Broken("sequence ", work.id.value, " is retried ", c.retries, " times");
      }
      c.running = c.decoding = false;
      continue;
    }
    if (!result.works[i].status.ok()) continue;
    for (int64_t p = work.outputs_from; c.all_rows && p < std::min(work.end(), c.prompt_tokens);
         ++p) {
      // The last prompt row is wanted again when a sequence is resumed from it.
      if (p == c.rows_delivered) {
        ++c.rows_delivered;
        coverage_->Count("all rows");
      } else if (!work.sample || p != work.end() - 1) {
        return Broken("sequence ", work.id.value, " delivers prompt row ", p, " after ",
                      c.rows_delivered, " rows");
      }
    }
    if (work.end() == static_cast<int64_t>(c.tokens.size())) c.prompt_done = true;
    if (!work.sample) continue;
    c.decoding = true;
    c.tokens.push_back(result.works[i].token);
    const size_t n = c.tokens.size();
    if (n > c.alone.tokens.size() || c.tokens[n - 1] != c.alone.tokens[n - 1]) {
      return Broken("sequence ", work.id.value, " has another token than alone at ", n - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status World::OnEnded(const Ended& ended) {
  const auto it = clients_.find(ended.id.value);
  if (it == clients_.end() || it->second.ended) {
    return Broken("sequence ", ended.id.value, " ends twice or was never there");
  }
  Client& c = it->second;
  c.ended = true;
  std::erase(live_, ended.id.value);
  Trace(absl::StrCat("end ", ended.id.value, " reason ", static_cast<int>(ended.reason)));
  const int64_t fresh = static_cast<int64_t>(c.tokens.size()) - c.prompt_tokens;
  const bool natural = ended.reason == EndReason::kFinished || ended.reason == EndReason::kLength;
  if (sched_->contains(ended.id)) return Broken("an ended sequence is still there");
  if (natural != ended.status.ok()) return Broken("end and status disagree");
  if (natural && ended.stats.new_tokens != fresh) {
    return Broken("sequence ", ended.id.value, " counts ", ended.stats.new_tokens, " of ", fresh);
  }
  if (natural && c.all_rows && c.rows_delivered != c.prompt_tokens) {
    return Broken("sequence ", ended.id.value, " ends without all its prompt rows");
  }
  switch (ended.reason) {
    case EndReason::kFinished:
      coverage_->Count("end finished");
      if (c.tokens.back() != kEndToken || fresh == 0) return Broken("finished without end token");
      histories_.push_back(c.tokens);
      break;
    case EndReason::kLength:
      coverage_->Count("end length");
      if (!c.open_length && static_cast<int64_t>(c.tokens.size()) != c.tokens_max) {
        return Broken("sequence ", ended.id.value, " ends by length at ", c.tokens.size(), " of ",
                      c.tokens_max);
      }
      histories_.push_back(c.tokens);
      break;
    case EndReason::kAborted:
      coverage_->Count("end aborted");
      if (!c.aborted) return Broken("aborted by nobody");
      break;
    case EndReason::kDeadline:
      coverage_->Count("end deadline");
      if (c.deadline_us == 0 || (c.deadline_us > now_us_ && !c.hopeless))
        return Broken("expired too early");
      break;
    case EndReason::kError:
      coverage_->Count("end error");
      if (step_ > calm_after_) return Broken("an error without a fault");
      break;
  }
  return absl::OkStatus();
}

absl::Status World::Finish() {
  for (const auto& [id, c] : clients_) {
    if (!c.ended) return Broken("sequence ", id, " never ended");
  }
  const scheduler::Stats s = sched_->stats();
  if (s.pages_owned != 0) return Broken(s.pages_owned, " pages are owned by nobody");
  coverage_->Count("evictions", s.cache.evictions);
  coverage_->Count("trimmed pages", s.cache.trimmed_pages);
  coverage_->Count("steps", s.steps);
  coverage_->Count("worlds");
  coverage_->Count("worlds with eviction", s.cache.evictions > 0);
  coverage_->Count("worlds with preemption", s.preemptions > 0);
  sched_->DropCached();
  if (sched_->stats().pages_free != options_.pages) return Broken("pages are missing at the end");
  return sched_->Check();
}

void World::Trace(const std::string& line) const {
  if (trace_) std::printf("[%5lld] %s\n", static_cast<long long>(step_), line.c_str());
}

}  // namespace cuvil::sim
