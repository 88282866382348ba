// World's oracles over plans: what any scheduler with this contract must keep.

#include <algorithm>
#include <set>

#include "tests/sim/world.h"

namespace cuvil::sim {

using scheduler::Admission;
using scheduler::Role;
using scheduler::SequenceId;
using scheduler::StepPlan;
using scheduler::Work;

namespace {

template <typename... T>
absl::Status Broken(const T&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

}  // namespace

bool World::Eligible(const Client& c) const {
  if (c.running || c.ended) return false;
  const auto it = clients_.find(c.after.value);
  return it == clients_.end() || it->second.ended || it->second.prompt_done;
}

absl::Status World::CheckPlan(const StepPlan& plan) {
  std::set<int64_t> seen;
  int64_t rows = 0, decodes = 0, streaming = 0;
  bool prefill_seen = false;
  for (const Work& work : plan.works) {
    const Client& c = Find(work.id);
    const int64_t size = static_cast<int64_t>(work.tokens.size());
    rows += size;
    decodes += work.role == Role::kDecode;
    streaming += c.decoding;
    prefill_seen = prefill_seen || work.role == Role::kPrefill;
    if (c.ended || !seen.insert(work.id.value).second) return Broken("a work too many");
    if (work.role == Role::kDecode && (prefill_seen || size != 1)) {
      return Broken("decode rows are one each and come first");
    }
    if (size == 0 || work.end() > static_cast<int64_t>(c.tokens.size()) ||
        !std::equal(work.tokens.begin(), work.tokens.end(), c.tokens.begin() + work.begin)) {
      return Broken("sequence ", work.id.value, " is fed other tokens than it has");
    }
    const bool all = work.end() == static_cast<int64_t>(c.tokens.size());
    if (work.sample != (all && c.tokens_max > c.prompt_tokens)) return Broken("sample or not");
    if (all && !work.wants_output()) return Broken("the last row is not wanted");
    if (c.deadline_us > 0 && c.deadline_us <= now_us_) return Broken("runs past its deadline");
  }
  if (rows != plan.rows || rows > options_.rows_max) return Broken("step of ", rows, " rows");
  for (const int64_t id : live_) {
    const Client& c = Find({id});
    const bool gone = std::ranges::count(plan.preempt, SequenceId{id}) > 0 ||
                      std::ranges::count(plan.expire, SequenceId{id}) > 0;
    if (c.decoding && !gone && !seen.contains(id)) {
      return Broken("sequence ", id, " decodes but has no row");
    }
  }
  RETURN_IF_ERROR(CheckExpired(plan));
  const auto& model = sched_->step_time();
  const int64_t together = PromptsTogether(plan);
  if (streaming > 0 && options_.itl_target_us > 0 && model.known() &&
      rows - decodes > options_.prefill_rows_min * together &&
      model.Predict({rows, plan.keys}) > Patience(plan, together) + 1e-3) {
    return Broken("a step of ", rows, " rows (", decodes, " decode) for ", together,
                  " prompts takes ", model.Predict({rows, plan.keys}), " us, allowed are ",
                  Patience(plan, together));
  }
  return absl::OkStatus();
}

// How long the step may take for the sake of prompts.
double World::Patience(const StepPlan& plan, int64_t together) const {
  scheduler::StepLoad decoding;
  const auto add = [&](SequenceId id) {
    const Client& c = clients_.at(id.value);
    const int64_t length = static_cast<int64_t>(c.tokens.size());
    const int64_t sees = c.trim.enabled() ? std::min(c.trim.max_kv_len, length) : length;
    decoding = decoding + scheduler::StepLoad{1, sees};
  };
  for (const Work& work : plan.works) {
    // Who comes back with one row to go is let in like a prompt.
    if (work.role == Role::kDecode && clients_.at(work.id.value).running) add(work.id);
  }
  // One may still have to go for the sake of a prompt.
  for (const SequenceId id : plan.preempt) {
    if (clients_.at(id.value).decoding) add(id);
  }
  return std::max(static_cast<double>(options_.itl_target_us * together),
                  2 * sched_->step_time().Predict(decoding));
}

// Prompts that could have rows of this step: as many may share the patience of those that decode.
int64_t World::PromptsTogether(const StepPlan& plan) const {
  int64_t prompts = 0, starting = 0, places = options_.sequences_max;
  for (const int64_t id : live_) {
    const Client& c = clients_.at(id);
    if (std::ranges::count(plan.expire, SequenceId{id}) > 0) continue;
    // A preempted one gives its place to another in the same plan.
    const bool stays = c.running && std::ranges::count(plan.preempt, SequenceId{id}) == 0;
    places -= stays;
    prompts += c.running && !c.decoding;
    starting += Eligible(c);
  }
  prompts += std::min(starting, places);
  return std::clamp<int64_t>(prompts, 1, options_.prefill_burst_max);
}

// Before its deadline only one goes that never ran, while others run and wait for more places than
// there are.
absl::Status World::CheckExpired(const StepPlan& plan) {
  int64_t running = 0, queued = 0;
  for (const int64_t id : live_) {
    running += Find({id}).running;
    queued += !Find({id}).ever_ran;
  }
  for (const SequenceId id : plan.expire) {
    Client& c = Find(id);
    if (c.deadline_us == 0) return Broken("expired without a deadline");
    if (c.deadline_us <= now_us_) continue;
    if (c.ever_ran || running == 0 || queued <= options_.sequences_max - running) {
      return Broken("sequence ", id.value, " expired too early");
    }
    c.hopeless = true;
    coverage_->Count("deadline hopeless");
  }
  return absl::OkStatus();
}

// Who is admitted: the smallest priority first and first come first served among equals of one
// tenant, except on the turns of the longest waiting.
absl::Status World::CheckAdmissions(const StepPlan& plan) {
  std::vector<const Client*> eligible;
  for (const int64_t id : live_) {
    const Client& c = Find({id});
    const bool expires = std::ranges::count(plan.expire, SequenceId{id}) > 0;
    if (Eligible(c) && !expires) eligible.push_back(&c);
  }
  int64_t turn = admissions_;
  for (const Admission& admission : plan.admit) {
    const Client& x = Find(admission.id);
    const auto at = std::ranges::find(eligible, &x);
    if (at == eligible.end()) return Broken("sequence ", x.id.value, " may not start");
    const bool oldest_turn = (++turn) % options_.oldest_every == 0;
    if (oldest_turn && at != eligible.begin()) return Broken("the longest waiting has its turn");
    if (oldest_turn) coverage_->Count("oldest first");
    for (const Client* y : eligible) {
      if (!oldest_turn && y->priority < x.priority) {
        return Broken("sequence ", x.id.value, " overtakes priority ", y->priority);
      }
      if (y->priority == x.priority && y->tenant == x.tenant && y->id < x.id) {
        return Broken("sequence ", x.id.value, " overtakes ", y->id.value);
      }
    }
    eligible.erase(at);
  }
  return absl::OkStatus();
}

// Nobody starves: every oldest_every-th admission goes to the longest waiting, and each older one
// comes back a bounded number of times.
absl::Status World::CheckWaits() {
  for (const int64_t id : live_) {
    Client& c = Find({id});
    if (!Eligible(c)) continue;
    if (c.eligible_at < 0) {
      int64_t older = 0;
      for (const int64_t other : live_) older += other < id;
      c.eligible_at = admissions_;
      c.admissions_max = (older * (1 + options_.preemptions_max + options_.retries_max) + 1) *
                         options_.oldest_every;
    }
    if (admissions_ - c.eligible_at > c.admissions_max) {
      return Broken("sequence ", id, " starves: ", admissions_ - c.eligible_at,
                    " admissions have passed it");
    }
  }
  return absl::OkStatus();
}

}  // namespace cuvil::sim
