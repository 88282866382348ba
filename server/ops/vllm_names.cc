// vLLM's names for our numbers: what inference gateways, autoscalers and public dashboards read.
// They are made from the collected families, so counting costs nothing twice.
#include <algorithm>

#include "prometheus/metric_family.h"
#include "server/ops/metrics.h"

namespace cuvil::ops {
namespace {

struct Name {
  std::string_view ours, theirs;
};
constexpr Name kFamilies[] = {
    {"cuvild_requests_running", "vllm:num_requests_running"},
    {"cuvild_requests_waiting", "vllm:num_requests_waiting"},
    {"cuvild_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"cuvild_cache_config_info", "vllm:cache_config_info"},
    {"cuvild_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"cuvild_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"cuvild_preemptions_total", "vllm:num_preemptions_total"},
    {"cuvild_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"cuvild_cached_prompt_tokens_total", "vllm:prompt_tokens_cached_total"},
    {"cuvild_generated_tokens_total", "vllm:generation_tokens_total"},
    {"cuvild_requests_finished_total", "vllm:request_success_total"},
    {"cuvild_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"cuvild_inter_token_seconds", "vllm:inter_token_latency_seconds"},
    {"cuvild_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"cuvild_request_seconds", "vllm:e2e_request_latency_seconds"},
    {"cuvild_queue_seconds", "vllm:request_queue_time_seconds"},
    {"cuvild_prefill_seconds", "vllm:request_prefill_time_seconds"},
    {"cuvild_decode_seconds", "vllm:request_decode_time_seconds"},
    {"cuvild_inference_seconds", "vllm:request_inference_time_seconds"},
    {"cuvild_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"cuvild_request_generated_tokens", "vllm:request_generation_tokens"},
    {"cuvild_step_tokens", "vllm:iteration_tokens_total"},
};
constexpr Name kLabels[] = {{"model", "model_name"},
                            {"finish_reason", "finished_reason"},
                            {"num_blocks", "num_gpu_blocks"}};

}  // namespace

std::vector<prometheus::MetricFamily> VllmFamilies(
    const std::vector<prometheus::MetricFamily>& families) {
  std::vector<prometheus::MetricFamily> renamed;
  for (const Name& name : kFamilies) {
    const auto ours = std::find_if(families.begin(), families.end(),
                                   [&](const auto& f) { return f.name == name.ours; });
    if (ours == families.end()) continue;
    prometheus::MetricFamily& family = renamed.emplace_back(*ours);
    family.name = std::string(name.theirs);
    // Routers take a family's series for their models': "other" is none.
    std::erase_if(family.metric, [](const prometheus::ClientMetric& metric) {
      return std::any_of(metric.label.begin(), metric.label.end(), [](const auto& label) {
        return label.name == "model" && label.value == "other";
      });
    });
    for (prometheus::ClientMetric& metric : family.metric) {
      for (auto& label : metric.label) {
        for (const Name& other : kLabels) {
          if (label.name == other.ours) label.name = std::string(other.theirs);
        }
      }
      metric.label.push_back({"engine", "0"});
    }
  }
  return renamed;
}

}  // namespace cuvil::ops
