#include "server/engine/answer.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cuvil::server {
namespace {

// Of choice k of a request with this seed: its own stream of numbers, and choice 0 the seed's.
uint64_t SeedOf(uint64_t seed, int k) {
  if (k == 0) return seed;
  // splitmix64's finaliser: neighbouring inputs, unrelated outputs.
  uint64_t x = seed + static_cast<uint64_t>(k) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double Seconds(int64_t from_us, int64_t to_us) {
  return to_us > from_us ? static_cast<double>(to_us - from_us) * 1e-6 : 0;
}

bool HasPenalty(const engine::SamplingParams& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

FinishReason ReasonOf(scheduler::EndReason reason) {
  switch (reason) {
    case scheduler::EndReason::kFinished:
      return FinishReason::kStop;
    case scheduler::EndReason::kLength:
      return FinishReason::kLength;
    case scheduler::EndReason::kAborted:
      return FinishReason::kAborted;
    case scheduler::EndReason::kDeadline:
      return FinishReason::kDeadline;
    case scheduler::EndReason::kError:
      return FinishReason::kError;
  }
  return FinishReason::kError;
}

// Of a choice that ended by other means than its own.
absl::Status StatusOf(const scheduler::Ended& ended) {
  switch (ended.reason) {
    case scheduler::EndReason::kAborted:
      return absl::CancelledError("the request was cancelled");
    case scheduler::EndReason::kDeadline:
      return absl::DeadlineExceededError(
          "the request did not finish by its deadline; raise the deadline or ask for fewer tokens");
    case scheduler::EndReason::kError:
      return ended.status;
    default:
      return absl::OkStatus();
  }
}

}  // namespace

Answer::Answer(uint64_t handle, GenerateRequest request, std::shared_ptr<AnswerSink> sink,
               std::shared_ptr<const text::Tokenizer> tokenizer, int64_t now_us)
    : handle_(handle),
      request_(std::move(request)),
      sink_(std::move(sink)),
      tokenizer_(std::move(tokenizer)),
      submitted_us_(now_us),
      counts_tokens_(HasPenalty(request_.sampling)) {
  const int count = std::max(request_.choices, request_.best_of);
  const engine::TokenCounts prompt =
      counts_tokens_ ? engine::TokenCounts(request_.prompt) : engine::TokenCounts();
  for (int k = 0; k < count; ++k) {
    Choice c;
    c.sampling = request_.sampling;
    c.sampling.seed = SeedOf(request_.sampling.seed, k);
    // Candidates are ranked by their log probability.
    if (count > request_.choices) c.sampling.logprobs = std::max(c.sampling.logprobs, 0);
    c.counts = prompt;
    c.detokenizer = std::make_unique<text::Detokenizer>(tokenizer_, request_.stop);
    choices_.push_back(std::move(c));
  }
  open_ = count;
  usage_.prompt_tokens = static_cast<int64_t>(request_.prompt.size());
}

scheduler::Spec Answer::SpecOf(int k, scheduler::SequenceId first, int64_t now_us) const {
  scheduler::Spec spec;
  spec.prompt = request_.prompt;
  spec.max_new_tokens = request_.task == Task::kEmbed ? 0 : request_.max_tokens;
  spec.priority = request_.priority;
  spec.tenant = request_.tenant;
  // Length-prefixed, so that no pair of tenant and salt spells another.
  spec.space = absl::StrCat(request_.tenant.size(), ":", request_.tenant, request_.cache_salt);
  if (request_.trim && request_.trim->max_kv_len > 0)
    spec.trim = {request_.trim->max_kv_len, request_.trim->sinks};
  if (request_.deadline_ms > 0) spec.deadline_us = now_us + request_.deadline_ms * 1000;
  spec.all_rows = k == 0 && (request_.task == Task::kEmbed || request_.prompt_logprobs >= 0);
  if (k > 0) spec.after = first;
  return spec;
}

bool Answer::Take(int k, engine::SampledToken token, int64_t now_us) {
  Choice& c = choices_[k];
  ++c.tokens;
  ++usage_.completion_tokens;
  c.last_token_us = now_us;
  c.logprob_sum += token.logprob;
  if (counts_tokens_) c.counts.Add(token.id);
  if (timings_.first_token_s == 0) timings_.first_token_s = Seconds(submitted_us_, now_us);
  TokenEvent event{.choice = k, .token = std::move(token)};
  const int32_t id = event.token.id;
  const auto& stops = request_.stop_tokens;
  if ((!request_.ignore_eos && tokenizer_->IsEndOfGeneration(id)) ||
      std::find(stops.begin(), stops.end(), id) != stops.end()) {
    c.stopped = true;
  } else {
    text::Detokenizer::Piece piece = c.detokenizer->Push(id, c.tokens > request_.min_tokens);
    event.text = std::move(piece.text);
    c.stopped = piece.stopped;
    if (piece.stopped) {
      c.stop_matched = std::move(piece.stop);
      if (request_.include_stop) event.text += c.stop_matched;
    }
  }
  pending_.tokens.push_back(std::move(event));
  dirty_ = true;
  return c.stopped;
}

void Answer::End(int k, const scheduler::Ended& ended, int64_t now_us) {
  Choice& c = choices_[k];
  if (c.ended) return;
  c.ended = true;
  --open_;
  usage_.preemptions += ended.stats.preemptions;
  usage_.trimmed_tokens += ended.stats.trimmed_tokens;
  if (k == 0) {
    usage_.cached_tokens = ended.stats.cached_tokens;
    first_reason_ = ReasonOf(ended.reason);
    const int64_t scheduled = ended.stats.scheduled_us;
    timings_.queue_s = Seconds(submitted_us_, scheduled > 0 ? scheduled : now_us);
    timings_.prefill_s = scheduled > 0 ? Seconds(scheduled, ended.stats.prompt_done_us) : 0;
  }
  if (const absl::Status status = StatusOf(ended); !status.ok()) {
    if (status_.ok()) status_ = status;
  } else {
    ChoiceEnd end{.choice = k, .reason = ReasonOf(ended.reason)};
    // A stop string has taken what was held back with it.
    if (c.stop_matched.empty()) end.text = c.detokenizer->Flush().text;
    end.stop_matched = c.stop_matched;
    pending_.ended.push_back(std::move(end));
  }
  dirty_ = true;
  CloseIfDone(now_us);
}

void Answer::AddPromptLogprobs(int64_t position, engine::SampledToken token) {
  if (position < listed_) return;
  ++listed_;
  prompt_logprobs_.push_back(std::move(token));
  if (listed_ < usage_.prompt_tokens) return;
  pending_.prompt_logprobs = std::move(prompt_logprobs_);
  dirty_ = true;
}

void Answer::Pool(int64_t position, absl::Span<const float> hidden) {
  if (position < pooled_rows_) return;
  pooled_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) pooled_[i] += hidden[i];
  ++pooled_rows_;
}

void Answer::Fail(absl::Status status, int64_t now_us) {
  if (status_.ok()) status_ = std::move(status);
  for (Choice& c : choices_) c.ended = true;
  open_ = 0;
  dirty_ = true;
  CloseIfDone(now_us);
}

void Answer::CloseIfDone(int64_t now_us) {
  if (open_ > 0) return;
  timings_.total_s = Seconds(submitted_us_, now_us);
  pending_.done = true;
  pending_.status = status_;
  pending_.usage = usage_;
  pending_.timings = timings_;
  if (static_cast<int>(choices_.size()) > request_.choices) pending_.best = BestOrder();
  if (request_.task == Task::kEmbed && status_.ok()) {
    for (const double sum : pooled_)
      pending_.embedding.push_back(static_cast<float>(sum / static_cast<double>(pooled_rows_)));
  }
}

// By log probability per token, as candidates differ in length.
std::vector<int> Answer::BestOrder() const {
  std::vector<int> order(choices_.size());
  std::iota(order.begin(), order.end(), 0);
  auto score = [&](int k) {
    return choices_[k].logprob_sum / static_cast<double>(std::max<int64_t>(choices_[k].tokens, 1));
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score(a) > score(b); });
  order.resize(request_.choices);
  return order;
}

void Answer::Flush() {
  if (!dirty_) return;
  dirty_ = false;
  Events events = std::move(pending_);
  pending_ = Events();
  const bool last = events.done;
  sink_->OnEvents(std::move(events));
  if (last) sink_.reset();
}

}  // namespace cuvil::server
