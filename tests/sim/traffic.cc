// World's clients: how big the world is, who comes when with what, and who leaves early.

#include <algorithm>

#include "tests/sim/world.h"

namespace cuvil::sim {

using scheduler::SequenceId;
using scheduler::Spec;

namespace {

template <typename... T>
absl::Status Broken(const T&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

std::vector<int32_t> RandomTokens(Rng* rng, int64_t n) {
  std::vector<int32_t> tokens(n);
  // Few different ones: prompts shall meet by accident, too.
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng->In(1, 3));
  return tokens;
}

}  // namespace

// Small pools and short pages: eviction and preemption in nearly every world.
void World::MakeOptions() {
  options_.page_tokens = rng_.Pick<int>({2, 4, 4, 8});
  options_.context = rng_.In(24, 100);
  // One to three whole contexts.
  options_.pages = rng_.In(options_.context, 3 * options_.context) / options_.page_tokens;
  options_.rows_max = rng_.In(4, 24);
  options_.sequences_max = static_cast<int>(rng_.In(2, std::min<int64_t>(12, options_.rows_max)));
  options_.prefix_cache = rng_.Chance(90);
  if (rng_.Chance(30)) options_.prefix_hash_mask = 1;  // nearly everything collides
  options_.queue_requests_max = rng_.In(8, 40);
  options_.queue_tokens_max = rng_.In(200, 3000);
  options_.itl_target_us = rng_.Pick<int64_t>({0, 250, 400, 600});
  options_.prefill_rows_min = rng_.In(1, options_.page_tokens);
  options_.preemptions_max = rng_.Pick<int>({0, 1, 1, 2, 2, 3, 3, 3});
  options_.retries_max = static_cast<int>(rng_.In(0, 3));
  options_.oldest_every = static_cast<int>(rng_.In(2, 8));
  // Hope in most worlds: then sequences outgrow what was expected of them.
  options_.expected_new_tokens = rng_.Pick<int64_t>({0, 1, 4, 12});
}

void World::MakeTraffic() {
  arrivals_left_ = static_cast<int>(rng_.In(20, 80));
  arrival_percent_ = rng_.Pick<int>({5, 10, 30, 100});
  burst_max_ = static_cast<int>(rng_.In(1, 6));
  // Short prompts and long answers make for preemption, the other way round for eviction.
  prompt_max_ = static_cast<int>(rng_.In(6, rng_.Chance(40) ? options_.context + 2 : 20));
  new_max_ = static_cast<int>(rng_.In(4, 90));
  short_percent_ = rng_.Pick<int>({0, 40, 60});
  priorities_ = rng_.Pick<int>({1, 1, 2, 4});
  tenants_ = rng_.Pick<int>({1, 2, 3});
  calm_after_ = rng_.In(50, 600);
  trim_percent_ = rng_.Pick<int>({0, 30, 80});
  disconnect_percent_ = rng_.Pick<int>({0, 3, 15});
  step_error_percent_ = rng_.Pick<int>({0, 0, 3, 10});
  row_error_percent_ = rng_.Pick<int>({0, 0, 1, 3});
  commit_error_percent_ = rng_.Pick<int>({0, 0, 10, 40});
  deadline_percent_ = rng_.Pick<int>({0, 10, 40});
  if (rng_.Chance(25)) drain_step_ = static_cast<int>(rng_.In(1, 300));
  for (int i = 0; i < 3; ++i) {
    prefixes_.push_back(RandomTokens(&rng_, rng_.In(0, prompt_max_)));
    kvcache::TrimPolicy trim;
    trim.sinks = rng_.In(0, options_.page_tokens + 2);
    trim.max_kv_len = trim.sinks + options_.page_tokens + rng_.In(0, 3 * options_.page_tokens);
    trims_.push_back(trim);
  }
}

std::vector<int32_t> World::MakePrompt() {
  std::vector<int32_t> prompt;
  if (!histories_.empty() && rng_.Chance(30)) {
    prompt = rng_.Pick(histories_);  // the next turn of a conversation
  } else if (rng_.Chance(70)) {
    prompt = rng_.Pick(prefixes_);
  }
  const std::vector<int32_t> tail =
      RandomTokens(&rng_, rng_.In(0, rng_.Chance(70) ? options_.page_tokens : prompt_max_));
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  if (static_cast<int64_t>(prompt.size()) > prompt_max_) prompt.resize(prompt_max_);
  return prompt;
}

Spec World::MakeSpec() {
  Spec spec;
  spec.prompt = MakePrompt();
  spec.max_new_tokens = rng_.Chance(15)               ? -1
                        : rng_.Chance(short_percent_) ? rng_.In(0, 3)
                                                      : rng_.In(new_max_ / 2, new_max_);
  spec.priority = static_cast<int>(rng_.In(0, priorities_ - 1));
  spec.tenant = absl::StrCat("t", rng_.In(0, tenants_ - 1));
  spec.weight = static_cast<double>(rng_.In(1, 3));
  spec.space = rng_.Chance(80) ? "shared" : spec.tenant;
  if (rng_.Chance(trim_percent_)) spec.trim = rng_.Pick(trims_);
  spec.all_rows = rng_.Chance(10);
  if (rng_.Chance(deadline_percent_)) spec.deadline_us = now_us_ + rng_.In(0, 40'000);
  return spec;
}

absl::Status World::Arrive() {
  if (arrivals_left_ == 0 || !rng_.Chance(arrival_percent_)) return absl::OkStatus();
  const int burst = static_cast<int>(rng_.In(1, std::min(burst_max_, arrivals_left_)));
  for (int i = 0; i < burst; ++i) {
    --arrivals_left_;
    const Spec spec = MakeSpec();
    SequenceId first;
    RETURN_IF_ERROR(SubmitOne({}, spec, &first));
    const int64_t choices = first.valid() && rng_.Chance(25) ? rng_.In(1, 3) : 0;
    for (int64_t k = 0; k < choices; ++k) {
      SequenceId next;
      RETURN_IF_ERROR(SubmitOne(first, spec, &next));
      if (next.valid()) coverage_->Count("choices after");
    }
  }
  return absl::OkStatus();
}

absl::Status World::SubmitOne(SequenceId after, const Spec& spec, SequenceId* id) {
  Spec copy = spec;
  copy.after = after;
  const auto accepted = sched_->Submit(std::move(copy), now_us_);
  const scheduler::Stats stats = sched_->stats();
  if (sched_->draining() && (accepted.ok() || absl::IsResourceExhausted(accepted.status()))) {
    return Broken("a draining model accepts");
  }
  if (!accepted.ok()) {
    const absl::Status& why = accepted.status();
    coverage_->Count(absl::IsUnavailable(why)         ? "refused drain"
                     : absl::IsResourceExhausted(why) ? "refused queue"
                                                      : "refused invalid");
    if (absl::IsUnavailable(why) && !sched_->draining()) return Broken("draining without a drain");
    return absl::OkStatus();
  }
  *id = *accepted;
  Client c = {.id = *id, .after = after, .tenant = spec.tenant, .priority = spec.priority};
  for (const char ch : spec.space) c.space = Mix(c.space + static_cast<uint64_t>(ch));
  c.trim = spec.trim;
  c.prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  c.deadline_us = spec.deadline_us;
  c.open_length = spec.max_new_tokens < 0;
  c.all_rows = spec.all_rows;
  c.tokens = spec.prompt;
  const int64_t room = options_.context - c.prompt_tokens;
  c.tokens_max = c.prompt_tokens + (c.open_length ? room : std::min(spec.max_new_tokens, room));
  c.alone = RunAlone(spec.prompt, c.space, spec.trim, c.tokens_max);
  if (c.prompt_tokens > options_.rows_max) coverage_->Count("long prompt");
  Trace(absl::StrCat("submit ", id->value, " prompt ", c.prompt_tokens, " max ", c.tokens_max,
                     " trim ", c.trim.max_kv_len, "/", c.trim.sinks, " priority ", c.priority,
                     " waiting ", stats.waiting));
  clients_.emplace(id->value, std::move(c));
  live_.push_back(id->value);
  return absl::OkStatus();
}

absl::Status World::Disconnect(bool in_flight) {
  if (clients_.empty() || !rng_.Chance(disconnect_percent_)) return absl::OkStatus();
  if (live_.empty() || rng_.Chance(5)) {  // somebody long gone, or not yet there
    const SequenceId id = {rng_.In(1, static_cast<int64_t>(clients_.size()) + 3)};
    if (sched_->contains(id)) return absl::OkStatus();
    coverage_->Count("abort unknown");
    return sched_->Abort(id).has_value() ? Broken("an unknown sequence ends") : absl::OkStatus();
  }
  return Abort(&Find({rng_.Pick(live_)}), in_flight);
}

absl::Status World::Abort(Client* c, bool in_flight) {
  Trace(absl::StrCat("abort ", c->id.value));
  c->aborted = true;
  const bool first = !c->ever_ran, running = c->running;
  const auto ended = sched_->Abort(c->id);
  if (!ended.has_value()) {
    if (!in_flight) return Broken("an abort between steps has to wait");
    coverage_->Count("abort in flight");
    return absl::OkStatus();
  }
  coverage_->Count(running ? "abort running" : first ? "abort waiting" : "abort preempted");
  if (ended->reason != scheduler::EndReason::kAborted) return Broken("an abort ends otherwise");
  return OnEnded(*ended);
}

}  // namespace cuvil::sim
