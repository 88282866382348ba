// Scheduler: what is refused, and why.

#include <algorithm>
#include <cmath>
#include <limits>

#include "scheduler/queue_limits.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence_state.h"

namespace cuvil::scheduler {
namespace {

// A tenant's share: wide enough for any tariff, narrow enough that tags stay exact.
constexpr double kWeightMin = 1e-3, kWeightMax = 1e3;

}  // namespace

absl::Status Validate(const Options& o) {
  const auto positive = [](const char* name, int64_t value) {
    return value > 0 ? absl::OkStatus()
                     : absl::InvalidArgumentError(
                           absl::StrCat("scheduler: ", name, " is ", value, ", must be positive"));
  };
  RETURN_IF_ERROR(positive("pages", o.pages));
  RETURN_IF_ERROR(positive("page_tokens", o.page_tokens));
  RETURN_IF_ERROR(positive("context", o.context));
  RETURN_IF_ERROR(positive("rows_max", o.rows_max));
  RETURN_IF_ERROR(positive("sequences_max", o.sequences_max));
  RETURN_IF_ERROR(positive("queue_requests_max", o.queue_requests_max));
  RETURN_IF_ERROR(positive("queue_tokens_max", o.queue_tokens_max));
  RETURN_IF_ERROR(positive("prefill_rows_min", o.prefill_rows_min));
  RETURN_IF_ERROR(positive("prefill_burst_max", o.prefill_burst_max));
  RETURN_IF_ERROR(positive("oldest_every", o.oldest_every));
  if (o.pages > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler: pages is ", o.pages, ", ids of pages have 31 bits"));
  }
  if (o.sequences_max > o.rows_max) {
    return absl::InvalidArgumentError(absl::StrCat("scheduler: sequences_max ", o.sequences_max,
                                                   " must not exceed rows_max ", o.rows_max,
                                                   ": all must be able to decode in one step"));
  }
  if (o.itl_target_us < 0 || o.preemptions_max < 0 || o.retries_max < 0 ||
      o.expected_new_tokens < 0) {
    return absl::InvalidArgumentError(
        "scheduler: itl_target_us, preemptions_max, retries_max and expected_new_tokens must not "
        "be negative");
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckRoom(int64_t sequences, int64_t prompt_tokens) const {
  if (draining_) {
    return absl::UnavailableError("the model is draining: it takes no new requests");
  }
  return CheckQueue(
      {.places = options_.sequences_max,
       .sequences = options_.queue_requests_max,
       .tokens = options_.queue_tokens_max},
      {.present = static_cast<int64_t>(sequences_.size()), .waiting_tokens = queue_tokens_},
      sequences, prompt_tokens);
}

absl::StatusOr<SequenceId> Scheduler::Submit(Spec spec, int64_t now_us) {
  absl::StatusOr<SequenceId> id = Accept(std::move(spec), now_us);
  ++(id.ok() ? stats_.submitted : stats_.refused);
  return id;
}

absl::StatusOr<SequenceId> Scheduler::Accept(Spec spec, int64_t now_us) {
  const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
  RETURN_IF_ERROR(CheckSpec(spec));
  RETURN_IF_ERROR(CheckRoom(1, prompt));
  auto s = std::make_unique<Sequence>();
  const int64_t room = options_.context - prompt;
  const bool open = spec.max_new_tokens < 0;
  s->prompt_tokens = prompt;
  s->pages.trim = spec.trim;
  const auto set_length = [&](int64_t new_tokens) {
    s->tokens_max = prompt + new_tokens;
    s->positions_max = std::max(prompt, s->tokens_max - 1);
    s->worst_pages = spec.trim.PagesMax(s->positions_max, options_.page_tokens, options_.rows_max);
  };
  set_length(open ? room : std::min(spec.max_new_tokens, room));
  if (s->worst_pages > options_.pages && open) {
    // "The rest" ends where the memory does.
    set_length(std::max<int64_t>(1, options_.pages * options_.page_tokens - prompt + 1));
  }
  if (s->worst_pages > options_.pages) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request may need ", s->worst_pages, " pages of ", options_.page_tokens,
                     " tokens, the model has ", options_.pages,
                     "; ask for fewer tokens or give the model more KV memory"));
  }
  s->id = {next_id_++};
  s->priority = spec.priority;
  s->tenant = std::move(spec.tenant);
  s->deadline_us = spec.deadline_us;
  s->all_rows = spec.all_rows;
  s->after = spec.after;
  s->tokens = std::move(spec.prompt);
  s->pages.space = std::move(spec.space);
  s->stats.prompt_tokens = prompt;
  s->stats.queued_us = now_us;
  fair_.Enter(s->tenant, spec.weight);
  if (s->deadline_us > 0) deadlines_.emplace(s->deadline_us, s->id.value);
  ++queue_requests_;
  queue_tokens_ += prompt;
  s->open = open;
  s->queued_rows = service_time_.Rows(prompt, spec.max_new_tokens);
  queue_rows_ += s->queued_rows;
  waiting_.insert(s->id.value);
  const SequenceId id = s->id;
  sequences_.emplace(id.value, std::move(s));
  return id;
}

absl::Status Scheduler::CheckSpec(const Spec& spec) const {
  const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (spec.max_new_tokens < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_new_tokens is ", spec.max_new_tokens, ", must be -1 or more"));
  }
  const int64_t least = prompt + (spec.max_new_tokens == 0 ? 0 : 1);
  if (least > options_.context) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", prompt, " tokens, which leaves no room in the context of ",
                     options_.context));
  }
  if (!(spec.weight >= kWeightMin && spec.weight <= kWeightMax)) {
    return absl::InvalidArgumentError(absl::StrCat("weight is ", spec.weight, ", must be between ",
                                                   kWeightMin, " and ", kWeightMax));
  }
  if (spec.after.valid() && spec.after.value >= next_id_) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence ", spec.after.value, " to come after is unknown"));
  }
  return kvcache::Validate(spec.trim, options_.page_tokens);
}

}  // namespace cuvil::scheduler
