// Scheduler::Planner: makes one StepPlan from a scheduler it does not change. Keeps a ledger of the
// pages and guarantees that the plan itself takes and gives back. Private to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence_state.h"

namespace cuvil::scheduler {

class Scheduler::Planner {
 public:
  Planner(const Scheduler& scheduler, int64_t now_us);
  StepPlan Make();

 private:
  // Rows and pages that the plan gives to one sequence.
  struct Slot {
    const Sequence* s = nullptr;
    int64_t begin = 0, rows = 0;
    int64_t table = 0;     // entries of its page table, with those reserved
    int64_t reserved = 0;  // pages
    bool guaranteed = false;
  };

  void Expire();
  void Upgrade();
  void PlanDecodes();
  void PlanPrefills();
  void Emit();

  bool Hopeless(const Sequence& s) const;
  void SetBudget();
  int64_t RowsLeft(const Sequence& s, int64_t begin) const;
  void Spend(const Sequence& s, int64_t begin, int64_t rows);
  int64_t PromptsInNeed() const;
  const Sequence* FirstPrefill() const;
  void Feed(const Sequence& s, int64_t rows_max);
  const Sequence* NextWaiting() const;
  bool TryAdmit(const Sequence& s);

  // The ledger.
  bool MakeRoom(int64_t pages, const Sequence& s);
  const Sequence* Victim(const Sequence& s) const;
  int64_t Redo(const Sequence& s) const;
  void Preempt(const Sequence& victim);
  void GiveBack(const Sequence& s);
  int32_t Refs(int32_t page) const;
  int64_t PagesForRows(const Slot& slot, int64_t rows) const;
  int64_t RowsThatFit(const Slot& slot, int64_t pages) const;

  bool Guaranteed(const Sequence& s) const {
    return s.guaranteed || upgraded_.contains(s.id.value);
  }
  bool Gone(const Sequence& s) const { return gone_.contains(s.id.value); }
  bool MayStart(const Sequence& s) const;
  int64_t ExpectedPages(const Sequence& s) const;
  double Tag(const Sequence& s) const;
  Slot* FindSlot(std::vector<Slot>* slots, const Sequence& s) const;

  const Scheduler& sched_;
  StepPlan plan_;
  std::vector<const Sequence*> running_;  // by admission, less the expired
  std::vector<Slot> decodes_, prefills_;
  absl::flat_hash_set<int64_t> gone_;  // expired, preempted
  absl::flat_hash_set<int64_t> admitted_, upgraded_;
  absl::flat_hash_map<int32_t, int32_t> refs_;        // change of owners per page
  absl::flat_hash_map<std::string, double> charges_;  // change of tags
  int64_t available_ = 0;                             // pages
  int64_t guarantee_free_ = 0;                        // pages of no guarantee
  int64_t expected_pages_ = 0;                        // of all that run
  int64_t opportunistic_ = 0;                         // that run
  int64_t present_ = 0;                               // that run
  // What is left to prompts: rows, of those the ones they get whatever the time, and time.
  int64_t prefill_rows_ = 0, floor_rows_ = 0;
  double prefill_us_ = 0;
};

}  // namespace cuvil::scheduler
