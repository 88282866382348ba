#include "server/ops/instruments.h"
#include "server/ops/metrics.h"

namespace cuvil::ops {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
using server::FinishReason;
using server::ModelState;

// vLLM's, so that dashboards and alerts made for it read ours.
const Buckets kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                             1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kPerToken = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                           .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kRequest = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kTokens = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                         2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
// Ours: a step or a compilation on one machine.
const Buckets kStep = {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};
const Buckets kCompile = {.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const Buckets kBatch = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength,
                                     FinishReason::kAborted, FinishReason::kDeadline,
                                     FinishReason::kError};
constexpr ModelState kStates[] = {ModelState::kUnloaded,  ModelState::kLoading,
                                  ModelState::kReady,     ModelState::kSleeping,
                                  ModelState::kUnloading, ModelState::kFailed};

// Adds what `now` is beyond `*counted`; a total that went down has started over.
void CountDelta(int64_t now, int64_t* counted, prometheus::Counter* counter) {
  const int64_t delta = now >= *counted ? now - *counted : now;
  *counted = now;
  if (delta > 0) counter->Increment(static_cast<double>(delta));
}

}  // namespace

ModelMetrics::ModelMetrics(prometheus::Registry* registry, const std::string& model)
    : registry_(registry),
      model_(model),
      phases_({"open", "tier0", "compile", "swap", "host", "total"}) {
  const prometheus::Labels only = {{"model", model}};
  const auto with = [&](const char* name, const std::string& value) {
    return prometheus::Labels{{"model", model}, {name, value}};
  };
  const auto counter = [&](const char* name, const char* help) {
    return MakeCounter(registry, name, help, only);
  };
  const auto gauge = [&](const char* name, const char* help) {
    return MakeGauge(registry, name, help, only);
  };
  const auto histogram = [&](const char* name, const char* help, const Buckets& buckets) {
    return MakeHistogram(registry, name, help, only, buckets);
  };

  running_ = gauge("cuvild_requests_running", "Requests that take part in steps");
  waiting_ = gauge("cuvild_requests_waiting", "Requests accepted and not yet running");
  pages_total_ = gauge("cuvild_kv_blocks_total", "Pages of keys and values in the pool");
  pages_used_ = gauge("cuvild_kv_blocks_used", "Pages that belong to sequences");
  pages_cached_ = gauge("cuvild_kv_blocks_cached", "Pages kept for prompts that begin the same");
  kv_usage_ = gauge("cuvild_kv_cache_usage_ratio", "Used pages over all pages, 0 to 1");

  prompt_tokens_ = counter("cuvild_prompt_tokens_total", "Prompt tokens of ended requests");
  generated_tokens_ = counter("cuvild_generated_tokens_total", "Tokens generated");
  cached_tokens_ = counter("cuvild_cached_prompt_tokens_total",
                           "Prompt tokens that were not computed, because their pages were cached");
  trimmed_tokens_ = counter("cuvild_trimmed_tokens_total",
                            "Positions whose keys and values were dropped by max_kv_len");
  prefix_queries_ =
      counter("cuvild_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  prefix_hits_ =
      counter("cuvild_prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  preemptions_ = counter("cuvild_preemptions_total", "Sequences that gave up their pages");
  pages_evicted_ = counter("cuvild_kv_blocks_evicted_total", "Cached pages that were reused");
  pages_trimmed_ = counter("cuvild_kv_blocks_trimmed_total", "Pages freed by max_kv_len");
  steps_failed_ = counter("cuvild_steps_failed_total", "Steps that ended in an error");
  cancelled_ = counter("cuvild_cancelled_total", "Requests whose client left");
  deadline_exceeded_ = counter("cuvild_deadline_exceeded_total", "Requests that ran out of time");
  watchdog_trips_ = counter("cuvild_watchdog_trips_total", "Stalls: work waited and no step ended");
  cache_hits_ = counter("cuvild_compile_cache_hits_total", "Programs found compiled");
  cache_misses_ = counter("cuvild_compile_cache_misses_total", "Programs that were compiled");

  for (const FinishReason reason : kReasons) {
    finished_.push_back(MakeCounter(registry, "cuvild_requests_finished_total",
                                    "Requests that a model ended, by reason",
                                    with("finish_reason", std::string(FinishName(reason)))));
  }
  for (const ModelState state : kStates) {
    states_.push_back(MakeGauge(registry, "cuvild_model_state", "1 for the state the model is in",
                                with("state", std::string(StateName(state)))));
  }
  for (size_t i = 0; i < phases_.size(); ++i) {
    load_seconds_.push_back(MakeGauge(registry, "cuvild_model_load_seconds",
                                      "Time of the last load by phase", with("phase", phases_[i])));
  }
  for (const char* kind : {"weights", "kv", "workspace", "code"}) {
    memory_.push_back(MakeGauge(registry, "cuvild_memory_bytes",
                                "Memory the model takes by its plan", with("kind", kind)));
  }
  constexpr char kLoads[] = "cuvild_model_loads_total",
                 kLoadsHelp[] = "Loads and wake-ups by how they ended";
  loads_ok_ = MakeCounter(registry, kLoads, kLoadsHelp, with("outcome", "ok"));
  loads_failed_ = MakeCounter(registry, kLoads, kLoadsHelp, with("outcome", "failed"));

  first_token_ = histogram("cuvild_time_to_first_token_seconds",
                           "From acceptance to the first token", kFirstToken);
  inter_token_ =
      histogram("cuvild_inter_token_seconds", "Between two tokens of a choice", kPerToken);
  per_output_token_ = histogram("cuvild_time_per_output_token_seconds",
                                "Mean time between tokens of a request", kPerToken);
  request_ = histogram("cuvild_request_seconds", "From acceptance to the last token", kRequest);
  queue_ = histogram("cuvild_queue_seconds", "From acceptance to the first step", kRequest);
  prefill_ =
      histogram("cuvild_prefill_seconds", "From the first step to the first token", kRequest);
  decode_ = histogram("cuvild_decode_seconds", "From the first token to the last", kRequest);
  inference_ = histogram("cuvild_inference_seconds", "From the first step to the last", kRequest);
  request_prompt_ = histogram("cuvild_request_prompt_tokens", "Prompt tokens per request", kTokens);
  request_generated_ =
      histogram("cuvild_request_generated_tokens", "Generated tokens per request", kTokens);
  batch_size_ = histogram("cuvild_batch_size", "Sequences per step", kBatch);
  step_tokens_ = histogram("cuvild_step_tokens", "Tokens per step", kTokens);
  compile_ =
      histogram("cuvild_compile_seconds", "Compiling a model, or finding it compiled", kCompile);
  const auto step = [&](const char* phase) {
    return MakeHistogram(registry, "cuvild_step_seconds", "Rows and sampling of a step",
                         with("phase", phase), kStep);
  };
  step_prefill_ = step("prefill");
  step_decode_ = step("decode");
  step_mixed_ = step("mixed");
}

void ModelMetrics::Step(const server::StepReport& step, const server::EngineTotals& totals) {
  prometheus::Histogram* const seconds = step.decode_rows == 0    ? step_prefill_
                                         : step.prefill_rows == 0 ? step_decode_
                                                                  : step_mixed_;
  seconds->Observe(step.step_s);
  step_tokens_->Observe(static_cast<double>(step.rows));
  batch_size_->Observe(static_cast<double>(step.sequences));
  SetLoad(step.load);
  CountTotals(totals);
}

void ModelMetrics::CountTotals(const server::EngineTotals& totals) {
  CountDelta(totals.prefix_lookup_tokens, &counted_.prefix_lookup_tokens, prefix_queries_);
  CountDelta(totals.prefix_hit_tokens, &counted_.prefix_hit_tokens, prefix_hits_);
  CountDelta(totals.preemptions, &counted_.preemptions, preemptions_);
  CountDelta(totals.evicted_pages, &counted_.evicted_pages, pages_evicted_);
  CountDelta(totals.trimmed_pages, &counted_.trimmed_pages, pages_trimmed_);
  CountDelta(totals.steps_failed, &counted_.steps_failed, steps_failed_);
}

void ModelMetrics::InterToken(double seconds) { inter_token_->Observe(seconds); }

void ModelMetrics::RequestEnd(FinishReason reason, const server::Usage& usage,
                              const server::Timings& t) {
  finished_[static_cast<size_t>(reason)]->Increment();
  if (reason == FinishReason::kAborted) cancelled_->Increment();
  if (reason == FinishReason::kDeadline) deadline_exceeded_->Increment();
  prompt_tokens_->Increment(static_cast<double>(usage.prompt_tokens));
  generated_tokens_->Increment(static_cast<double>(usage.completion_tokens));
  cached_tokens_->Increment(static_cast<double>(usage.cached_tokens));
  trimmed_tokens_->Increment(static_cast<double>(usage.trimmed_tokens));
  request_prompt_->Observe(static_cast<double>(usage.prompt_tokens));
  request_->Observe(t.total_s);
  queue_->Observe(t.queue_s);
  // A request that never got a token has no time to it; zeros would flatter every percentile.
  if (t.first_token_s <= 0) return;
  const double decode_s = t.total_s - t.first_token_s;
  first_token_->Observe(t.first_token_s);
  prefill_->Observe(t.prefill_s);
  decode_->Observe(decode_s);
  inference_->Observe(t.total_s - t.queue_s);
  request_generated_->Observe(static_cast<double>(usage.completion_tokens));
  if (usage.completion_tokens > 1) {
    per_output_token_->Observe(decode_s / static_cast<double>(usage.completion_tokens - 1));
  }
}

void ModelMetrics::SetLoad(const server::Load& load) {
  running_->Set(static_cast<double>(load.running));
  waiting_->Set(static_cast<double>(load.waiting));
  pages_total_->Set(static_cast<double>(load.pages_total));
  pages_used_->Set(static_cast<double>(load.pages_used));
  pages_cached_->Set(static_cast<double>(load.pages_cached));
  kv_usage_->Set(load.pages_total > 0
                     ? static_cast<double>(load.pages_used) / static_cast<double>(load.pages_total)
                     : 0);
  SetCacheConfig(load.page_tokens, load.pages_total);
}

// An info metric: its labels are the values, so a change is another child.
void ModelMetrics::SetCacheConfig(int page_tokens, int64_t pages) {
  std::lock_guard lock(mutex_);
  if (page_tokens == page_tokens_ && pages == pages_) return;
  page_tokens_ = page_tokens;
  pages_ = pages;
  auto& family = prometheus::BuildGauge()
                     .Name("cuvild_cache_config_info")
                     .Help("1; its labels say how the page pool is made")
                     .Register(*registry_);
  if (cache_config_ != nullptr) family.Remove(cache_config_);
  cache_config_ = &family.Add({{"model", model_},
                               {"block_size", std::to_string(page_tokens)},
                               {"num_blocks", std::to_string(pages)}});
  cache_config_->Set(1);
}

void ModelMetrics::SetState(ModelState state, bool failed) {
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i]->Set(static_cast<size_t>(state) == i ? 1 : 0);
  }
  if (state == ModelState::kReady) loads_ok_->Increment();
  if (failed) loads_failed_->Increment();
}

void ModelMetrics::LoadPhase(std::string_view phase, double seconds) {
  load_seconds_[phases_.Index(phase)]->Set(seconds);
  if (phase == "compile") compile_->Observe(seconds);
}

void ModelMetrics::CompileCache(int64_t hits, int64_t misses) {
  cache_hits_->Increment(static_cast<double>(hits));
  cache_misses_->Increment(static_cast<double>(misses));
}

void ModelMetrics::SetMemory(int64_t weights, int64_t kv, int64_t workspace, int64_t code) {
  const int64_t bytes[] = {weights, kv, workspace, code};
  for (size_t i = 0; i < memory_.size(); ++i) memory_[i]->Set(static_cast<double>(bytes[i]));
}

void ModelMetrics::WatchdogTrip() { watchdog_trips_->Increment(); }

}  // namespace cuvil::ops
