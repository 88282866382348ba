#include "server/engine/model_host.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/engine.h"
#include "server/api/param.h"
#include "server/engine/prompt_logprobs.h"

namespace cuvil::server {
namespace {

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Rows a prompt gets in a step though streams wait and the step is over its target: what a decode
// plan takes too, and at the end of a long context still about twice the time of a step without.
constexpr int64_t kPrefillRowsMin = 8;

absl::Status Stopped() {
  return absl::UnavailableError("the model is being stopped; send the request again");
}

// Whether the rows of a work want more than its last logits.
bool Embeds(const GenerateRequest& r) { return r.task == Task::kEmbed; }
// The last prompt row speaks of the answer, not of the prompt. Outputs from 0 on are wanted once:
// then the first token is listed, which no row speaks of.
bool Scores(const GenerateRequest& r, int choice, const scheduler::Work& work) {
  if (r.task != Task::kGenerate || r.prompt_logprobs < 0 || choice != 0) return false;
  const int64_t spoken_of = static_cast<int64_t>(r.prompt.size()) - 1;
  return work.outputs_from == 0 || work.outputs_from < std::min(work.end(), spoken_of);
}

}  // namespace

MemoryRequest MemoryRequestOf(const gguf::ModelConfig& config, int workers, int64_t code_bytes,
                              const HostOptions& options) {
  return {.context = config.context_length,
          .vocab_size = config.vocab_size,
          .embedding_size = config.n_embd,
          .code_bytes = code_bytes,
          .workers = workers,
          .sequences_max = options.sequences_max,
          .kv_tokens = options.kv_tokens,
          .limit = options.memory_limit,
          .trim = {options.trim.max_kv_len, options.trim.sinks}};
}

ModelHost::ModelHost(std::shared_ptr<const engine::Model> model, const HostOptions& options,
                     EngineObserver* observer)
    : model_(std::move(model)), options_(options), observer_(observer) {}

absl::StatusOr<std::unique_ptr<ModelHost>> ModelHost::Start(
    std::shared_ptr<const engine::Model> model, const HostOptions& options,
    EngineObserver* observer) {
  std::unique_ptr<ModelHost> host(new ModelHost(std::move(model), options, observer));
  const engine::Model& m = *host->model_;
  RETURN_IF_ERROR(engine::CheckTrim({options.trim.max_kv_len, options.trim.sinks}, m));
  host->memory_ =
      PlanMemory(m.program(), MemoryRequestOf(m.config(), m.threads(), m.code().bytes(), options));
  ASSIGN_OR_RETURN(host->runner_,
                   engine::StepRunner::Create(host->model_, {.pages = host->memory_.pages,
                                                             .sequences_max = options.sequences_max,
                                                             .pin = options.pin}));
  if (options.sequences_max > host->runner_->rows_max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_running is ", options.sequences_max, " and a step of this model has ",
        host->runner_->rows_max(), " rows, of which each sequence needs one; lower max_running"));
  }
  ASSIGN_OR_RETURN(host->sampler_, engine::Sampler::Create(m, options.cache_dir));
  const scheduler::Options schedule{.pages = host->memory_.pages,
                                    .page_tokens = host->runner_->page_tokens(),
                                    .context = host->runner_->context(),
                                    .rows_max = host->runner_->rows_max(),
                                    .sequences_max = options.sequences_max,
                                    .prefix_cache = options.prefix_cache,
                                    .queue_requests_max = options.queue_requests_max,
                                    .queue_tokens_max = options.queue_tokens_max,
                                    .itl_target_us = options.itl_target_us,
                                    .prefill_rows_min = kPrefillRowsMin};
  RETURN_IF_ERROR(scheduler::Validate(schedule));
  host->scheduler_ = std::make_unique<scheduler::Scheduler>(schedule);
  for (int32_t id = 0; id < m.tokenizer()->vocab_size(); ++id) {
    if (m.tokenizer()->IsEndOfGeneration(id)) host->end_tokens_.push_back(id);
  }
  host->Publish();
  host->thread_ = std::thread([h = host.get()] { h->Loop(); });
  return host;
}

ModelHost::~ModelHost() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

absl::Status ModelHost::Submit(uint64_t handle, GenerateRequest request,
                               std::shared_ptr<AnswerSink> sink) {
  if (!request.trim) request.trim = options_.trim;
  request.deadline_ms = DeadlineMs(request.deadline_ms);
  RETURN_IF_ERROR(Validate(request));
  std::lock_guard lock(mutex_);
  const int64_t sequences = std::max(request.choices, request.best_of);
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  RETURN_IF_ERROR(CheckRoomLocked({.sequences = sequences,
                                   .prompt_tokens = prompt,
                                   .max_tokens = request.max_tokens,
                                   .deadline_ms = request.deadline_ms}));
  inbox_sequences_ += sequences;
  inbox_tokens_ += sequences * prompt;
  inbox_rows_ += sequences * service_time_.Rows(prompt, request.max_tokens);
  inbox_.push_back({handle, std::move(request), std::move(sink), NowUs()});
  live_.fetch_add(1);
  wake_.notify_one();
  return absl::OkStatus();
}

void ModelHost::Abort(uint64_t handle) {
  std::lock_guard lock(mutex_);
  aborts_.push_back(handle);
  wake_.notify_one();
}

void ModelHost::BeginDrain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

Load ModelHost::load() const {
  std::lock_guard lock(mutex_);
  Load load = load_;
  load.waiting += inbox_sequences_;
  return load;
}

void ModelHost::Loop() {
  while (TakeInbox()) StepOnce();
  for (auto& [handle, answer] : answers_) {
    answer->Fail(Stopped(), NowUs());
    answer->Flush();
    live_.fetch_sub(1);
  }
  std::deque<Submission> rest;
  {
    std::lock_guard lock(mutex_);
    rest.swap(inbox_);
  }
  for (Submission& s : rest) {
    Answer answer(s.handle, std::move(s.request), std::move(s.sink), model_->tokenizer(), s.at_us);
    answer.Fail(Stopped(), NowUs());
    answer.Flush();
    live_.fetch_sub(1);
  }
}

// Waits until there is something to do, then takes what other threads left.
bool ModelHost::TakeInbox() {
  std::deque<Submission> submissions;
  std::vector<uint64_t> aborts;
  {
    std::unique_lock lock(mutex_);
    if (idle_plan_) {
      const auto due = [this] { return stop_ || !inbox_.empty() || !aborts_.empty(); };
      const std::optional<int64_t> wakeup = scheduler_->NextWakeup();
      if (wakeup) {
        wake_.wait_for(lock, std::chrono::microseconds(std::max<int64_t>(0, *wakeup - NowUs())),
                       due);
      } else {
        wake_.wait(lock, due);
      }
    }
    if (stop_) return false;
    submissions.swap(inbox_);
    aborts.swap(aborts_);
    // They count as waiting until Publish counts them among the scheduler's.
    taken_sequences_ = inbox_sequences_;
    taken_tokens_ = inbox_tokens_;
    taken_rows_ = inbox_rows_;
  }
  for (Submission& s : submissions) Begin(std::move(s));
  for (const uint64_t handle : aborts) AbortNow(handle);
  return true;
}

void ModelHost::Begin(Submission submission) {
  auto owned =
      std::make_unique<Answer>(submission.handle, std::move(submission.request),
                               std::move(submission.sink), model_->tokenizer(), submission.at_us);
  Answer* answer = owned.get();
  answers_[submission.handle] = std::move(owned);
  const auto weight = options_.tenant_weights.find(answer->request().tenant);
  scheduler::SequenceId first;
  for (size_t k = 0; k < answer->choices().size(); ++k) {
    scheduler::Spec spec = answer->SpecOf(static_cast<int>(k), first, submission.at_us);
    spec.weight = weight == options_.tenant_weights.end() ? 1 : weight->second;
    auto id = scheduler_->Submit(std::move(spec), submission.at_us);
    if (!id.ok()) {
      for (size_t i = 0; i < k; ++i) {
        scheduler_->Abort(answer->choices()[i].sequence);
        places_.erase(answer->choices()[i].sequence.value);
      }
      // All else was checked before: it would need more pages than there are.
      const bool asks_too_much = absl::IsInvalidArgument(id.status());
      answer->Fail(asks_too_much ? WithParam("max_tokens", id.status()) : id.status(), NowUs());
      Retire(answer);
      return;
    }
    if (k == 0) first = *id;
    answer->choices()[k].sequence = *id;
    places_[id->value] = {answer, static_cast<int>(k)};
  }
}

void ModelHost::AbortNow(uint64_t handle) {
  const auto it = answers_.find(handle);
  if (it == answers_.end()) return;
  std::vector<scheduler::Ended> ended;
  for (const Choice& c : it->second->choices()) {
    if (c.ended) continue;
    if (auto e = scheduler_->Abort(c.sequence)) ended.push_back(*std::move(e));
  }
  Finish(ended);
}

void ModelHost::StepOnce() {
  const scheduler::StepPlan plan = scheduler_->Plan(NowUs());
  if (const absl::Status status = scheduler_->Commit(plan); !status.ok()) return;
  if (taken_sequences_ > 0) Publish();
  scheduler::StepResult result;
  idle_plan_ = plan.idle();
  if (!plan.idle()) {
    if (observer_ != nullptr) observer_->OnStepBegin(options_.name);
    result = Run(plan);
  }
  const std::vector<scheduler::Ended> ended = scheduler_->Apply(plan, result, NowUs());
  if (!ended.empty()) idle_plan_ = false;  // room for others
  Finish(ended);
  for (const scheduler::Work& work : plan.works) {
    const auto it = places_.find(work.id.value);
    if (it != places_.end()) it->second.answer->Flush();
  }
  Publish();
  if (plan.idle()) return;
  steps_.fetch_add(1);
  if (observer_ == nullptr) return;
  const scheduler::Stats stats = scheduler_->stats();
  StepReport report{.rows = plan.rows,
                    .sequences = static_cast<int64_t>(plan.works.size()),
                    .step_s = static_cast<double>(result.elapsed_us) * 1e-6,
                    .load = load()};
  for (const scheduler::Work& work : plan.works) {
    (work.role == scheduler::Role::kDecode ? report.decode_rows : report.prefill_rows) +=
        static_cast<int64_t>(work.tokens.size());
  }
  observer_->OnStep(options_.name, report,
                    {.prefix_lookup_tokens = stats.cache.lookup_tokens,
                     .prefix_hit_tokens = stats.cache.hit_tokens,
                     .evicted_pages = stats.cache.evictions,
                     .trimmed_pages = stats.cache.trimmed_pages,
                     .preemptions = stats.preemptions,
                     .steps_failed = stats.steps_failed});
}

engine::StepRows ModelHost::RowsOf(const scheduler::Work& work) const {
  engine::StepRows rows{.tokens = work.tokens,
                        .begin = work.begin,
                        .pages = scheduler_->pages(work.id),
                        .want = work.sample ? engine::Want::kLast : engine::Want::kNone};
  const kvcache::TrimPolicy& trim = scheduler_->trim(work.id);
  if (trim.enabled()) {
    rows.window = trim.window();
    rows.sinks = trim.sinks;
  }
  return rows;
}

scheduler::StepResult ModelHost::Run(const scheduler::StepPlan& plan) {
  scheduler::StepResult result;
  result.works.resize(plan.works.size());
  const int64_t start = NowUs();
  sampled_.clear();
  result.status = RunRows(plan, result);
  // A plan that failed runs again, all of it: its tokens must not have been taken yet.
  if (result.status.ok()) TakeSampled();
  result.elapsed_us = NowUs() - start;
  return result;
}

// Rows that only continue run together; prompts that want every row's output run by themselves,
// and their outputs leave before the next logits overwrite them.
absl::Status ModelHost::RunRows(const scheduler::StepPlan& plan, scheduler::StepResult& result) {
  std::vector<engine::StepRows> rows;
  std::vector<const scheduler::Work*> sampled;
  std::vector<scheduler::WorkResult*> results;
  for (size_t i = 0; i < plan.works.size(); ++i) {
    const scheduler::Work& work = plan.works[i];
    const Place& place = places_.at(work.id.value);
    const GenerateRequest& request = place.answer->request();
    if (Embeds(request) || Scores(request, place.choice, work)) {
      RETURN_IF_ERROR(RunAllRows(work, result.works[i]));
      continue;
    }
    rows.push_back(RowsOf(work));
    if (!work.sample) continue;
    sampled.push_back(&work);
    results.push_back(&result.works[i]);
  }
  if (rows.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(runner_->Step(rows));
  std::vector<float*> logits;
  for (size_t i = 0; i < sampled.size(); ++i) logits.push_back(runner_->mutable_logits(i));
  SampleRows(sampled, logits, results);
  return absl::OkStatus();
}

absl::Status ModelHost::RunAllRows(const scheduler::Work& work, scheduler::WorkResult& result) {
  Answer& answer = *places_.at(work.id.value).answer;
  engine::StepRows rows = RowsOf(work);
  if (Embeds(answer.request())) {
    rows.want = engine::Want::kNone;
    RETURN_IF_ERROR(runner_->Step({&rows, 1}, /*hidden=*/true));
    for (int64_t p = std::max(work.begin, work.outputs_from); p < work.end(); ++p)
      answer.Pool(p, runner_->hidden(p - work.begin));
    return absl::OkStatus();
  }
  const std::vector<int32_t>& prompt = answer.request().prompt;
  const int alternatives = answer.request().prompt_logprobs;
  rows.want = engine::Want::kAll;
  if (work.outputs_from == 0) answer.AddPromptLogprobs(0, {.id = prompt[0]});
  for (int64_t at = work.begin; at < work.end(); at += kLogitRowsMax) {
    const int64_t n = std::min(kLogitRowsMax, work.end() - at);
    rows.begin = at;
    rows.tokens = work.tokens.subspan(at - work.begin, n);
    RETURN_IF_ERROR(runner_->Step({&rows, 1}));
    for (int64_t p = std::max(at, work.outputs_from); p < at + n; ++p) {
      if (p + 1 >= static_cast<int64_t>(prompt.size())) continue;
      answer.AddPromptLogprobs(p + 1,
                               LogprobOf(runner_->logits(p - at), prompt[p + 1], alternatives));
    }
    if (work.sample && at + n == work.end())
      SampleRows({&work}, {runner_->mutable_logits(n - 1)}, {&result});
  }
  return absl::OkStatus();
}

void ModelHost::SampleRows(const std::vector<const scheduler::Work*>& works,
                           const std::vector<float*>& rows,
                           const std::vector<scheduler::WorkResult*>& results) {
  std::vector<engine::SampleJob> jobs;
  for (size_t i = 0; i < works.size(); ++i) {
    const Place& place = places_.at(works[i]->id.value);
    const Choice& c = place.answer->choices()[place.choice];
    if (c.tokens < place.answer->request().min_tokens) {
      constexpr float kNever = -std::numeric_limits<float>::infinity();
      for (const int32_t id : end_tokens_) rows[i][id] = kNever;
      for (const int32_t id : place.answer->request().stop_tokens) rows[i][id] = kNever;
    }
    jobs.push_back({.row = rows[i],
                    .params = &c.sampling,
                    .so_far = place.answer->CountsTokens() ? &c.counts : nullptr,
                    .output_index = c.tokens});
  }
  std::vector<absl::StatusOr<engine::SampledToken>> tokens =
      sampler_->SampleRows(runner_->executor(), jobs);
  for (size_t i = 0; i < works.size(); ++i) {
    if (tokens[i].ok()) {
      sampled_.push_back({places_.at(works[i]->id.value), *std::move(tokens[i]), results[i]});
    } else {
      results[i]->status = tokens[i].status();
    }
  }
}

void ModelHost::TakeSampled() {
  const int64_t now = NowUs();
  for (Sampled& s : sampled_) {
    const int64_t before = s.place.answer->choices()[s.place.choice].last_token_us;
    s.result->token = s.token.id;
    s.result->finish = s.place.answer->Take(s.place.choice, std::move(s.token), now);
    if (observer_ != nullptr && before > 0)
      observer_->OnInterToken(options_.name, static_cast<double>(now - before) * 1e-6);
  }
}

void ModelHost::Finish(const std::vector<scheduler::Ended>& ended) {
  for (const scheduler::Ended& e : ended) {
    const auto it = places_.find(e.id.value);
    CUVIL_CHECK(it != places_.end(), "every sequence has an answer until it ends");
    const Place place = it->second;
    places_.erase(it);
    place.answer->End(place.choice, e, NowUs());
    if (place.answer->done())
      Retire(place.answer);
    else
      place.answer->Flush();
  }
}

void ModelHost::Retire(Answer* answer) {
  if (observer_ != nullptr) {
    observer_->OnRequestEnd(options_.name, answer->first_reason(), answer->usage(),
                            answer->timings());
  }
  answer->Flush();
  answers_.erase(answer->handle());
  live_.fetch_sub(1);
}

void ModelHost::Publish() {
  const scheduler::Stats s = scheduler_->stats();
  std::lock_guard lock(mutex_);
  load_ = {.running = s.running,
           .waiting = s.waiting,
           .pages_total = s.pages_total,
           .pages_used = s.pages_owned,
           .pages_cached = s.pages_cached,
           .page_tokens = runner_->page_tokens()};
  waiting_tokens_ = s.waiting_tokens;
  waiting_rows_ = s.waiting_rows;
  service_time_ = scheduler_->service_time();
  inbox_sequences_ -= std::exchange(taken_sequences_, 0);
  inbox_tokens_ -= std::exchange(taken_tokens_, 0);
  inbox_rows_ -= std::exchange(taken_rows_, 0);
}

}  // namespace cuvil::server
