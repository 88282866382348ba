// Scheduler::Check: the invariants of README.md, one by one.

#include <algorithm>

#include "scheduler/scheduler.h"
#include "scheduler/sequence_state.h"

namespace cuvil::scheduler {

absl::Status Scheduler::Check() const {
  const auto fail = [](auto... what) { return absl::InternalError(absl::StrCat(what...)); };
  std::vector<const kvcache::SequencePages*> pages;
  int64_t running = 0, guaranteed = 0, guaranteed_pages = 0, queued = 0, queued_tokens = 0,
          queued_rows = 0;
  int64_t deadlines = 0, in_flight = 0;
  for (const auto& [id, s] : sequences_) {
    pages.push_back(&s->pages);
    running += s->running;
    in_flight += s->in_flight;
    if (s->running == waiting_.contains(id))
      return fail("sequence ", id, " is in no or two queues");
    if (!s->running && (!s->pages.pages.empty() || s->guaranteed || s->in_flight)) {
      return fail("waiting sequence ", id, " has pages, a guarantee or a step");
    }
    const int64_t held = static_cast<int64_t>(s->pages.pages.size()) - s->pages.holes;
    if (held > s->worst_pages) {
      return fail("sequence ", id, " holds ", held, " pages, worst case ", s->worst_pages);
    }
    if (s->guaranteed) {
      ++guaranteed;
      guaranteed_pages += s->worst_pages;
    }
    if (!s->started) {
      ++queued;
      queued_tokens += s->prompt_tokens;
      queued_rows += s->queued_rows;
    }
    if (s->stats.preemptions > options_.preemptions_max) {
      return fail("sequence ", id, " was preempted ", s->stats.preemptions, " times");
    }
    if (static_cast<int64_t>(s->tokens.size()) >= s->tokens_max + (s->generates() ? 0 : 1)) {
      return fail("sequence ", id, " has all its tokens and has not ended");
    }
    deadlines += s->deadline_us > 0;
  }
  if (running != static_cast<int64_t>(running_.size()) || running > options_.sequences_max) {
    return fail(running, " sequences run, kept ", running_.size(), ", limit ",
                options_.sequences_max);
  }
  if (guaranteed_pages != guaranteed_pages_ || guaranteed_pages > options_.pages) {
    return fail("guaranteed ", guaranteed_pages, " pages, kept ", guaranteed_pages_, " of ",
                options_.pages);
  }
  if (in_flight_ && running > 0 && (guaranteed == 0 || in_flight == 0)) {
    return fail("a committed step without progress: ", guaranteed, " guaranteed, ", in_flight,
                " in flight");
  }
  const auto present = static_cast<int64_t>(sequences_.size());
  if (queued != queue_requests_ || queued_tokens != queue_tokens_ || queued_rows != queue_rows_ ||
      present > options_.sequences_max + options_.queue_requests_max ||
      (present > options_.sequences_max && queued_tokens > options_.queue_tokens_max)) {
    return fail("queue of ", queued, " sequences, ", queued_tokens, " tokens and ", queued_rows,
                " rows, kept ", queue_requests_, ", ", queue_tokens_, " and ", queue_rows_);
  }
  if (deadlines != static_cast<int64_t>(deadlines_.size())) return fail("deadlines miscounted");
  if (stats_.submitted != stats_.ended + static_cast<int64_t>(sequences_.size()) ||
      stats_.ended !=
          stats_.finished + stats_.length + stats_.aborted + stats_.expired + stats_.failed) {
    return fail("submitted ", stats_.submitted, ", ended ", stats_.ended, ", present ",
                sequences_.size());
  }
  return cache_.Check(pages);
}

}  // namespace cuvil::scheduler
