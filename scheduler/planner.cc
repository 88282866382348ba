#include "scheduler/planner.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/checked.h"

namespace cuvil::scheduler {
namespace {

// Positions that `rows` rows of `s` from `begin` on look at, summed: each one more than the row
// before, up to what is kept.
int64_t KeysOf(const auto& s, int64_t begin, int64_t rows) {
  const kvcache::TrimPolicy& trim = s.pages.trim;
  const int64_t growing =
      trim.enabled() ? std::clamp<int64_t>(trim.max_kv_len - begin, 0, rows) : rows;
  const int64_t flat = rows - growing;
  return growing * begin + growing * (growing + 1) / 2 + (flat > 0 ? flat * trim.max_kv_len : 0);
}

}  // namespace

Scheduler::Planner::Planner(const Scheduler& scheduler, int64_t now_us) : sched_(scheduler) {
  plan_.now_us = now_us;
  plan_.version = sched_.version_;
  available_ = sched_.cache_.available();
  guarantee_free_ = sched_.options_.pages - sched_.guaranteed_pages_;
}

StepPlan Scheduler::Planner::Make() {
  Expire();
  Upgrade();
  PlanDecodes();
  PlanPrefills();
  Emit();
  return std::move(plan_);
}

void Scheduler::Planner::Expire() {
  const int64_t stay_max_us = sched_.service_time_.StayUs(sched_.options_.context);
  for (const auto& [deadline_us, id] : sched_.deadlines_) {
    if (deadline_us > plan_.now_us + stay_max_us) break;
    const Sequence& s = sched_.Get({id});
    if (deadline_us > plan_.now_us && !Hopeless(s)) continue;
    plan_.expire.push_back(s.id);
    gone_.insert(id);
    if (s.guaranteed) guarantee_free_ += s.worst_pages;
    GiveBack(s);
  }
  for (const int64_t id : sched_.running_) {
    if (!gone_.contains(id)) running_.push_back(&sched_.Get({id}));
  }
  present_ = static_cast<int64_t>(running_.size());
}

// Whether a sequence that never ran would miss its deadline if it started now, and another one
// wants its place: that one can still make it. Not while nothing runs, so that a wrong estimate
// cannot last.
bool Scheduler::Planner::Hopeless(const Sequence& s) const {
  const auto running = static_cast<int64_t>(sched_.running_.size());
  if (s.started || running == 0) return false;
  if (sched_.queue_requests_ <= sched_.options_.sequences_max - running) return false;
  return s.deadline_us < plan_.now_us + sched_.service_time_.StayUs(s.max_new_tokens());
}

// Reserves the worst case of running sequences, first admitted first. The first that does not fit
// keeps the place for itself: later ones would take what it waits for.
void Scheduler::Planner::Upgrade() {
  bool fits = true;
  for (const Sequence* s : running_) {
    if (s->guaranteed) continue;
    fits = fits && s->worst_pages <= guarantee_free_;
    if (!fits) {
      ++opportunistic_;
      continue;
    }
    guarantee_free_ -= s->worst_pages;
    upgraded_.insert(s->id.value);
    plan_.guarantee.push_back(s->id);
  }
}

void Scheduler::Planner::PlanDecodes() {
  std::vector<const Sequence*> decoders;
  for (const Sequence* s : running_) {
    if (s->decodes()) decoders.push_back(s);
  }
  const auto rank = [&](const Sequence* s) {
    return std::make_tuple(!Guaranteed(*s), s->priority, s->id);
  };
  std::ranges::sort(decoders, {}, rank);
  for (const Sequence* s : decoders) {
    if (Gone(*s)) continue;
    const int64_t need = sched_.cache_.PagesFor(s->pages, s->pages.length + 1);
    const bool room = MakeRoom(need, *s);
    if (Gone(*s)) continue;
    CUVIL_CHECK(room, "a decoding sequence finds a page or is preempted");
    available_ -= need;
    decodes_.push_back({.s = s, .begin = s->pages.length, .rows = 1, .reserved = need});
  }
  SetBudget();
}

// While others decode, a step with prompts may take as long as the target says, or twice what it
// takes without them: where that alone is over the target, prompts would crawl otherwise.
void Scheduler::Planner::SetBudget() {
  const Options& options = sched_.options_;
  prefill_rows_ = options.rows_max - static_cast<int64_t>(decodes_.size());
  floor_rows_ = prefill_rows_;
  if (decodes_.empty() || options.itl_target_us == 0) return;
  const int64_t prompts = PromptsInNeed();
  floor_rows_ = options.prefill_rows_min * prompts;
  const StepTimeModel& model = sched_.step_time_;
  if (!model.known()) return;
  StepLoad decoding;
  for (const Slot& slot : decodes_)
    decoding = decoding + StepLoad{1, KeysOf(*slot.s, slot.begin, 1)};
  const double without = model.Predict(decoding);
  prefill_us_ =
      std::max(static_cast<double>(options.itl_target_us * prompts), 2 * without) - without;
}

// Rows that a prompt may still have in this step, from position `begin` on.
int64_t Scheduler::Planner::RowsLeft(const Sequence& s, int64_t begin) const {
  const StepTimeModel& model = sched_.step_time_;
  int64_t within = 0;
  if (prefill_us_ > 0) {
    // Later rows look farther: as many as fit if all looked as the first one does are too many, and
    // what they look at on average is enough for the rest.
    within = std::min(prefill_rows_, model.RowsWithin(prefill_us_, KeysOf(s, begin, 1)));
    if (within > 0)
      within = model.RowsWithin(prefill_us_, CeilDiv(KeysOf(s, begin, within), within));
  }
  return std::min(prefill_rows_, std::max(floor_rows_, within));
}

void Scheduler::Planner::Spend(const Sequence& s, int64_t begin, int64_t rows) {
  prefill_rows_ -= rows;
  floor_rows_ = std::max<int64_t>(0, floor_rows_ - rows);
  prefill_us_ -= sched_.step_time_.Extra({rows, KeysOf(s, begin, rows)});
}

// Prompts that want rows and could have them, running or waiting: 1 .. prefill_burst_max.
int64_t Scheduler::Planner::PromptsInNeed() const {
  const int64_t most = sched_.options_.prefill_burst_max;
  int64_t prompts = 0;
  for (const Sequence* s : running_) prompts += !Gone(*s) && !s->decodes();
  const int64_t places = sched_.options_.sequences_max - present_;
  int64_t starting = 0;
  for (auto it = sched_.waiting_.begin(); it != sched_.waiting_.end(); ++it) {
    if (starting >= places || prompts + starting >= most) break;
    starting += MayStart(sched_.Get({*it}));
  }
  return std::clamp<int64_t>(prompts + starting, 1, most);
}

// Prompts compete for rows by priority, then fairness, then arrival, whether they run or wait. The
// first admitted of the guaranteed ones gets some rows before that, so that none stands still.
void Scheduler::Planner::PlanPrefills() {
  std::vector<const Sequence*> prefilling;
  for (const Sequence* s : running_) {
    expected_pages_ += Gone(*s) ? 0 : ExpectedPages(*s);
    if (!Gone(*s) && !s->decodes()) prefilling.push_back(s);
  }
  if (const Sequence* first = FirstPrefill(); first != nullptr) {
    Feed(*first, sched_.options_.prefill_rows_min);
  }
  const auto rank = [&](const Sequence* s) { return std::make_tuple(s->priority, Tag(*s), s->id); };
  bool blocked = false;
  while (prefill_rows_ > 0) {
    std::erase_if(prefilling, [&](const Sequence* s) { return Gone(*s); });
    const auto it = std::ranges::min_element(prefilling, {}, rank);
    const Sequence* waiting = blocked ? nullptr : NextWaiting();
    const bool oldest_turn = (sched_.admissions_ + static_cast<int64_t>(plan_.admit.size()) + 1) %
                                 sched_.options_.oldest_every ==
                             0;
    if (waiting != nullptr &&
        (it == prefilling.end() || oldest_turn || rank(waiting) < rank(*it))) {
      // Who does not fit is not overtaken, or small ones could keep it out for ever.
      blocked = !TryAdmit(*waiting);
    } else if (it != prefilling.end()) {
      const Sequence* s = *it;
      prefilling.erase(it);
      Feed(*s, prefill_rows_);
    } else {
      break;
    }
  }
}

const Scheduler::Sequence* Scheduler::Planner::FirstPrefill() const {
  const Sequence* first = nullptr;
  for (const Sequence* s : running_) {
    if (Gone(*s) || s->decodes()) continue;
    if (Guaranteed(*s)) return s;
    if (first == nullptr) first = s;
  }
  return first;
}

// Gives a running sequence up to `rows_max` rows of its prompt. A guaranteed one never waits for
// pages that an opportunistic one has; an opportunistic one takes what is there.
void Scheduler::Planner::Feed(const Sequence& s, int64_t rows_max) {
  Slot* slot = FindSlot(&prefills_, s);
  Slot draft = {.s = &s,
                .begin = s.pages.length,
                .table = static_cast<int64_t>(s.pages.pages.size()),
                .guaranteed = Guaranteed(s)};
  if (slot != nullptr) draft = *slot;
  const int64_t begin = draft.begin + draft.rows;
  int64_t rows = std::min({rows_max, RowsLeft(s, begin), s.pending() - draft.rows});
  if (draft.guaranteed) MakeRoom(PagesForRows(draft, rows), s);
  rows = std::min(rows, RowsThatFit(draft, available_));
  if (rows <= 0) return;
  const int64_t pages = PagesForRows(draft, rows);
  available_ -= pages;
  draft.reserved += pages;
  draft.table += pages;
  draft.rows += rows;
  Spend(s, begin, rows);
  slot = FindSlot(&prefills_, s);  // making room may have moved it
  if (slot != nullptr) {
    *slot = draft;
  } else {
    prefills_.push_back(draft);
  }
}

int64_t Scheduler::Planner::PagesForRows(const Slot& slot, int64_t rows) const {
  const int64_t end = slot.begin + slot.rows + rows;
  return std::max<int64_t>(0, CeilDiv<int64_t>(end, sched_.options_.page_tokens) - slot.table);
}

int64_t Scheduler::Planner::RowsThatFit(const Slot& slot, int64_t pages) const {
  return (slot.table + pages) * sched_.options_.page_tokens - slot.begin - slot.rows;
}

bool Scheduler::Planner::MayStart(const Sequence& s) const {
  if (Gone(s) || admitted_.contains(s.id.value)) return false;
  const auto it = sched_.sequences_.find(s.after.value);
  return it == sched_.sequences_.end() || it->second->prompt_done;
}

const Scheduler::Sequence* Scheduler::Planner::NextWaiting() const {
  const bool oldest_turn = (sched_.admissions_ + static_cast<int64_t>(plan_.admit.size()) + 1) %
                               sched_.options_.oldest_every ==
                           0;
  const Sequence* best = nullptr;
  for (const int64_t id : sched_.waiting_) {
    const Sequence& s = sched_.Get({id});
    if (!MayStart(s)) continue;
    if (oldest_turn) return &s;
    if (best == nullptr || std::make_tuple(s.priority, Tag(s), s.id) <
                               std::make_tuple(best->priority, Tag(*best), best->id)) {
      best = &s;
    }
  }
  return best;
}

// Admits with its worst case reserved, if everyone who runs has that and it fits; else if what is
// expected of all who run fits, and it has not been preempted too often.
bool Scheduler::Planner::TryAdmit(const Sequence& s) {
  const Options& options = sched_.options_;
  if (present_ >= options.sequences_max) return false;
  Admission admission = {.id = s.id};
  const bool guaranteed = opportunistic_ == 0 && s.worst_pages <= guarantee_free_;
  admission.guaranteed = guaranteed;
  if (!guaranteed && s.stats.preemptions >= options.preemptions_max) return false;
  admission.match = sched_.cache_.Find(s.pages.space, s.pages.trim, s.tokens, s.prefix_max());
  int64_t cached = 0, shared = 0;
  for (const int32_t page : admission.match.pages) {
    cached += page >= 0 && Refs(page) == 0;
    shared += page >= 0 && Refs(page) > 0;
  }
  const int64_t expected = std::max<int64_t>(1, ExpectedPages(s) - shared);
  if (!guaranteed && expected_pages_ + expected > options.pages) return false;

  Slot slot = {.s = &s,
               .begin = admission.match.tokens,
               .table = static_cast<int64_t>(admission.match.pages.size()),
               .guaranteed = guaranteed};
  const int64_t pending = static_cast<int64_t>(s.tokens.size()) - slot.begin;
  slot.rows = std::min({RowsLeft(s, slot.begin), pending, RowsThatFit(slot, available_ - cached)});
  if (slot.rows <= 0 || cached > available_) return false;
  const int64_t rows = std::exchange(slot.rows, 0);
  slot.reserved = PagesForRows(slot, rows);
  slot.rows = rows;
  slot.table += slot.reserved;

  available_ -= cached + slot.reserved;
  for (const int32_t page : admission.match.pages) {
    if (page >= 0) ++refs_[page];
  }
  expected_pages_ += expected;
  ++present_;
  if (guaranteed) {
    guarantee_free_ -= s.worst_pages;
  } else {
    ++opportunistic_;
  }
  if (!s.started) charges_[s.tenant] += pending / sched_.fair_.weight(s.tenant);
  Spend(s, slot.begin, rows);
  admitted_.insert(s.id.value);
  prefills_.push_back(slot);
  plan_.admit.push_back(std::move(admission));
  return true;
}

int64_t Scheduler::Planner::ExpectedPages(const Sequence& s) const {
  const int64_t expected = s.prompt_tokens + sched_.service_time_.NewTokens(-1);
  const int64_t positions = std::max<int64_t>(s.tokens.size(), std::min(s.positions_max, expected));
  const int64_t pages =
      s.pages.trim.PagesMax(positions, sched_.options_.page_tokens, sched_.options_.rows_max);
  const int64_t held = static_cast<int64_t>(s.pages.pages.size()) - s.pages.holes;
  return std::max(pages, held);
}

double Scheduler::Planner::Tag(const Sequence& s) const {
  const auto it = charges_.find(s.tenant);
  return sched_.fair_.tag(s.tenant) + (it == charges_.end() ? 0 : it->second);
}

Scheduler::Planner::Slot* Scheduler::Planner::FindSlot(std::vector<Slot>* slots,
                                                       const Sequence& s) const {
  const auto it = std::ranges::find(*slots, &s, &Slot::s);
  return it == slots->end() ? nullptr : &*it;
}

// Preempts opportunistic sequences until `pages` are available for `s`. False when nobody is left
// to preempt, or it was the turn of `s` itself.
bool Scheduler::Planner::MakeRoom(int64_t pages, const Sequence& s) {
  while (available_ < pages) {
    const Sequence* victim = Victim(s);
    if (victim == nullptr) return false;
    Preempt(*victim);
    if (victim == &s) return false;
  }
  return true;
}

// The least important opportunistic sequence that runs; of those the cheapest to redo, then the
// youngest. For an opportunistic `s` only those that this plan has not given anything yet, or `s`.
const Scheduler::Sequence* Scheduler::Planner::Victim(const Sequence& s) const {
  const Sequence* best = nullptr;
  std::tuple<int, int64_t, int64_t> best_rank;
  for (const Sequence* v : running_) {
    if (Gone(*v) || Guaranteed(*v)) continue;
    const bool planned = std::ranges::find(decodes_, v, &Slot::s) != decodes_.end();
    if (planned && !Guaranteed(s)) continue;
    const std::tuple<int, int64_t, int64_t> rank = {-v->priority, Redo(*v), -v->id.value};
    if (best == nullptr || rank < best_rank) {
      best = v;
      best_rank = rank;
    }
  }
  return best;
}

// Tokens to compute again if `s` is preempted: all but the start that others own too. Its other
// pages stay findable, but they are wanted now.
int64_t Scheduler::Planner::Redo(const Sequence& s) const {
  int64_t shared = 0;
  for (const int32_t page : s.pages.pages) {
    if (page >= 0 && Refs(page) <= 1) break;
    ++shared;
  }
  return s.pages.length - std::min(s.pages.length, shared * sched_.options_.page_tokens);
}

void Scheduler::Planner::Preempt(const Sequence& victim) {
  for (std::vector<Slot>* slots : {&decodes_, &prefills_}) {
    const auto it = std::ranges::find(*slots, &victim, &Slot::s);
    if (it == slots->end()) continue;
    available_ += it->reserved;
    slots->erase(it);
  }
  GiveBack(victim);
  gone_.insert(victim.id.value);
  --opportunistic_;
  --present_;
  expected_pages_ -= std::min(expected_pages_, ExpectedPages(victim));
  plan_.preempt.push_back(victim.id);
}

void Scheduler::Planner::GiveBack(const Sequence& s) {
  for (const int32_t page : s.pages.pages) {
    if (page < 0) continue;
    if (Refs(page) == 1) ++available_;
    --refs_[page];
  }
}

int32_t Scheduler::Planner::Refs(int32_t page) const {
  const auto it = refs_.find(page);
  return std::max(0, sched_.cache_.pool().refs(page)) + (it == refs_.end() ? 0 : it->second);
}

void Scheduler::Planner::Emit() {
  const auto add = [&](const Slot& slot, Role role) {
    const Sequence& s = *slot.s;
    Work work = {.id = s.id, .role = role, .begin = slot.begin};
    work.tokens = absl::MakeConstSpan(s.tokens).subspan(slot.begin, slot.rows);
    const bool last = work.end() == static_cast<int64_t>(s.tokens.size());
    work.sample = last && s.generates();
    work.outputs_from = last ? work.end() - 1 : work.end();
    if (s.all_rows && !s.prompt_done) {
      work.outputs_from = std::min(work.outputs_from, std::max(work.begin, s.outputs_done));
    }
    plan_.rows += slot.rows;
    plan_.keys += KeysOf(s, slot.begin, slot.rows);
    plan_.new_pages += slot.reserved;
    plan_.works.push_back(work);
  };
  for (const Slot& slot : decodes_) add(slot, Role::kDecode);
  // A readmitted sequence that lacks one row only decodes.
  const auto decodes = [](const Slot& slot) {
    return slot.s->prompt_done && slot.rows == 1 &&
           slot.begin + 1 == static_cast<int64_t>(slot.s->tokens.size());
  };
  for (const Slot& slot : prefills_) add(slot, decodes(slot) ? Role::kDecode : Role::kPrefill);
  std::ranges::stable_partition(plan_.works,
                                [](const Work& work) { return work.role == Role::kDecode; });
}

}  // namespace cuvil::scheduler
