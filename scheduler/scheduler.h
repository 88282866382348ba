// Scheduler: which sequences run in the next step of one model. Owns every accepted sequence from
// Submit to its Ended, its tokens and its pages. No device, socket, clock or thread: time is
// microseconds given by the caller, and the same calls give the same plans.
//
//   Submit -> waiting -> prefilling -> decoding -> Ended
//                ^-----------+------------+   (preempted, or its step failed)
//
// Owner: the step thread. A step is Plan, Commit, run, Apply; Submit and Abort may come at any
// time, except between Plan and Commit. Policy, invariants and the proof of progress: README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kvcache/kv_cache.h"
#include "scheduler/fair_share.h"
#include "scheduler/sequence.h"
#include "scheduler/service_time.h"
#include "scheduler/step_plan.h"
#include "scheduler/step_time.h"

namespace cuvil::scheduler {

struct Options {
  int64_t pages = 0;       // of the pool
  int page_tokens = 32;    // tokens per page
  int64_t context = 0;     // positions a sequence may have
  int64_t rows_max = 512;  // of one step: what the program was compiled for
  int sequences_max = 64;  // running at once; at most rows_max, so that all can decode in a step
  bool prefix_cache = true;

  // Sequences beyond sequences_max, and prompt tokens, that may wait (queue_limits.h). Beyond, "try
  // again later" is the honest answer: 512 sequences are eight full batches; a million tokens are
  // minutes of prefill on a CPU.
  int64_t queue_requests_max = 512;
  int64_t queue_tokens_max = int64_t{1} << 20;
  // While anyone decodes, a step shall not take longer: 100 ms between tokens still reads as
  // fluent. 0: no target.
  int64_t itl_target_us = 100'000;
  // A prompt gets these rows at least, whatever the target: one page, or long prompts never end.
  int64_t prefill_rows_min = 32;
  // Prompts that come together share one step's floor and target times their number, up to this:
  // four times 25 ms between two tokens still reads as fluent, and a burst is not let in one by
  // one.
  int64_t prefill_burst_max = 4;
  // After these a sequence is only admitted with its worst case reserved: bounds wasted work.
  int preemptions_max = 2;
  // A step that fails once may be bad luck (a lost device that came back); thrice is the request.
  int retries_max = 2;
  // Every eighth admission goes to whoever waits longest, so that no priority starves another.
  int oldest_every = 8;
  // Expected new tokens of a sequence until ended ones have taught better.
  int64_t expected_new_tokens = 128;
  // Weakens the hash of prefixes, so that tests can make them collide.
  uint64_t prefix_hash_mask = ~uint64_t{0};
  // Asked before a commit takes `pages` pages; an error fails that Commit. Null: always OK.
  std::function<absl::Status(int64_t pages)> reserve_hook;
};

// InvalidArgument with a sentence: what, value, fix.
absl::Status Validate(const Options& options);

struct Stats {
  int64_t waiting = 0, running = 0;  // running: has pages
  int64_t waiting_tokens = 0;        // prompt tokens of those that never ran
  int64_t waiting_rows = 0;          // that those are expected to take in all
  int64_t pages_total = 0, pages_owned = 0, pages_cached = 0, pages_free = 0;
  int64_t guaranteed_pages = 0;  // worst cases reserved
  // Since the start.
  int64_t submitted = 0, refused = 0, ended = 0;
  int64_t finished = 0, length = 0, aborted = 0, expired = 0, failed = 0;  // sum: ended
  int64_t steps = 0, steps_failed = 0, prefill_rows = 0, decode_rows = 0;
  int64_t preemptions = 0, retries = 0;
  kvcache::CacheCounters cache;
};

class Scheduler {
 public:
  // REQUIRES: Validate(options) is OK.
  explicit Scheduler(const Options& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // OK when `sequences` more with `prompt_tokens` together would be accepted: ResourceExhausted
  // (queue full, by which limit), Unavailable (draining). For requests of several choices.
  absl::Status CheckRoom(int64_t sequences, int64_t prompt_tokens) const;
  // Accepts a sequence, or CheckRoom's errors, or InvalidArgument: empty prompt, no room for a new
  // token in the context, more pages than the pool has, bad trim policy or weight, `after` unknown.
  absl::StatusOr<SequenceId> Submit(Spec spec, int64_t now_us);

  // The next step. Changes nothing.
  StepPlan Plan(int64_t now_us) const;
  // Makes it so: expires, attaches prefixes, preempts, reserves pages. REQUIRES: the plan is the
  // newest and nothing but Submit has happened since. ResourceExhausted (reserve_hook's) leaves
  // everything as it was; plan again.
  absl::Status Commit(const StepPlan& plan);
  // Closes a committed step, also one without works. Returns every sequence that has ended since
  // the last Apply, except those Abort returned.
  std::vector<Ended> Apply(const StepPlan& plan, const StepResult& result, int64_t now_us);

  // The client is gone. Its end, or nothing when the id is unknown (it has ended) or its step is
  // running: then Apply returns it.
  std::optional<Ended> Abort(SequenceId id);
  // From now on Submit refuses; what was accepted runs on.
  void BeginDrain() { draining_ = true; }
  bool draining() const { return draining_; }
  // No sequence is left.
  bool idle() const { return sequences_.empty(); }
  // When Plan must be called at the latest though nothing else happens: the earliest deadline.
  std::optional<int64_t> NextWakeup() const;
  // Forgets all cached prefixes.
  void DropCached() {
    cache_.DropCached();
    ++version_;
  }

  bool contains(SequenceId id) const { return sequences_.contains(id.value); }
  // REQUIRES for these: contains(id).
  // Page of position p is entry p / page_tokens; -1: no query from here on sees it.
  const std::vector<int32_t>& pages(SequenceId id) const;
  const std::vector<int32_t>& tokens(SequenceId id) const;  // prompt and new ones
  const kvcache::TrimPolicy& trim(SequenceId id) const;
  SequenceStats sequence_stats(SequenceId id) const;

  Stats stats() const;
  const StepTimeModel& step_time() const { return step_time_; }
  const ServiceTime& service_time() const { return service_time_; }
  // Verifies every invariant; Internal with a sentence. O(everything): for tests.
  absl::Status Check() const;

 private:
  struct Sequence;
  class Planner;

  const Sequence& Get(SequenceId id) const;
  Sequence& Get(SequenceId id);
  void Requeue(Sequence* s);
  Ended End(Sequence* s, EndReason reason, absl::Status status);
  absl::StatusOr<SequenceId> Accept(Spec spec, int64_t now_us);
  absl::Status CheckSpec(const Spec& spec) const;
  void Admit(const Admission& admission, int64_t now_us);
  void Fail(Sequence* s, const absl::Status& status);
  void ApplyWork(const Work& work, const WorkResult& result, int64_t now_us);

  Options options_;
  kvcache::KvCache cache_;
  FairShare fair_;
  StepTimeModel step_time_;
  ServiceTime service_time_;
  std::map<int64_t, std::unique_ptr<Sequence>> sequences_;  // all accepted, by arrival
  std::set<int64_t> waiting_;                               // ids
  std::vector<int64_t> running_;                            // ids by admission
  std::set<std::pair<int64_t, int64_t>> deadlines_;         // (deadline, id)
  std::vector<Ended> ended_;                                // at Commit, for the next Apply
  int64_t next_id_ = 1, version_ = 0, committed_ = -1, admissions_ = 0;
  int64_t guaranteed_pages_ = 0, queue_requests_ = 0, queue_tokens_ = 0, queue_rows_ = 0;
  bool draining_ = false, in_flight_ = false;
  Stats stats_;
};

}  // namespace cuvil::scheduler
