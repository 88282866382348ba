// Prometheus metrics of the daemon, cuvild_*. Names, types and labels are a contract: they stand in
// metric_names.txt, and a test compares. Label values come from closed sets fixed at construction;
// anything else counts as "other". Any thread; a call on the step thread costs tens of nanoseconds
// per number and waits for nothing but a scrape's copy of one histogram.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "prometheus/registry.h"
#include "server/api/backend.h"
#include "server/api/observer.h"
#include "server/ops/label_set.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace cuvil::ops {

// Of Text(): what GET /metrics says it is.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

struct MetricsOptions {
  std::vector<std::string> models;                     // served names
  std::vector<std::string> http_routes, grpc_methods;  // endpoints of the doors that are open
  std::vector<std::string> http_codes;                 // that HTTP's door can answer with
  bool vllm = false;            // also the vllm: names that routers and dashboards read
  std::string version, commit;  // of cuvild_build_info; the build id is added
};

// One model's numbers. Made by Metrics, lives as long.
class ModelMetrics {
 public:
  ModelMetrics(prometheus::Registry* registry, const std::string& model);

  // The step thread's. Totals may start over when a model is loaded again.
  void Step(const server::StepReport& step, const server::EngineTotals& totals);
  void InterToken(double seconds);
  void RequestEnd(server::FinishReason reason, const server::Usage& usage,
                  const server::Timings& timings);

  // Any thread.
  void SetLoad(const server::Load& load);
  // `failed`: a load or a wake-up ended in it with an error.
  void SetState(server::ModelState state, bool failed = false);
  void LoadPhase(std::string_view phase, double seconds);
  void CompileCache(int64_t hits, int64_t misses);  // programs found and not found
  void SetMemory(int64_t weights, int64_t kv, int64_t workspace, int64_t code);  // bytes
  void WatchdogTrip();

 private:
  void CountTotals(const server::EngineTotals& totals);
  void SetCacheConfig(int page_tokens, int64_t pages);

  prometheus::Registry* const registry_;
  const std::string model_;
  const LabelSet phases_;
  server::EngineTotals counted_;  // of the totals, so far; the step thread's

  prometheus::Gauge *running_, *waiting_, *pages_total_, *pages_used_, *pages_cached_, *kv_usage_;
  prometheus::Counter *prompt_tokens_, *generated_tokens_, *cached_tokens_, *trimmed_tokens_;
  prometheus::Counter *prefix_queries_, *prefix_hits_, *preemptions_, *pages_evicted_,
      *pages_trimmed_, *steps_failed_;
  prometheus::Counter *cancelled_, *deadline_exceeded_, *watchdog_trips_;
  prometheus::Counter *cache_hits_, *cache_misses_, *loads_ok_, *loads_failed_;
  std::vector<prometheus::Counter*> finished_;    // by FinishReason
  std::vector<prometheus::Gauge*> states_;        // by ModelState
  std::vector<prometheus::Gauge*> load_seconds_;  // by phase
  std::vector<prometheus::Gauge*> memory_;        // weights, kv, workspace, code
  prometheus::Histogram *first_token_, *inter_token_, *per_output_token_, *request_, *queue_,
      *prefill_, *decode_, *inference_, *request_prompt_, *request_generated_, *batch_size_,
      *step_tokens_, *compile_;
  prometheus::Histogram *step_prefill_, *step_decode_, *step_mixed_;

  std::mutex mutex_;  // not absl::Mutex: the thread sanitizer does not see into Debian's
  prometheus::Gauge* cache_config_ = nullptr;
  int page_tokens_ = 0;
  int64_t pages_ = 0;
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);
  ~Metrics();

  // The doors'. Each request that is started ends once: started = ended + in flight.
  struct RequestEnd {
    std::string_view endpoint, protocol;  // as when it started
    std::string_view code;                // "200", or a gRPC code's name
    std::string_view finish_reason;       // empty: no model worked
    double prepare_s = 0;                 // parsing, template, tokens; 0: not reached
  };
  void RequestStarted(std::string_view endpoint, std::string_view protocol);
  void RequestEnded(const RequestEnd& end);
  void Rejected(std::string_view reason);
  void SetHttpConnections(int64_t open);

  // The model's, or that of "other".
  ModelMetrics& Model(std::string_view name);

  // Called before each Text(), to set what is only looked up: loads, memory.
  void SetRefresh(std::function<void(Metrics&)> refresh);

  // The exposition, with process_* as of now. Milliseconds.
  std::string Text();
  std::vector<prometheus::MetricFamily> Collect();

 private:
  struct Endpoint {
    prometheus::Counter* started = nullptr;
    prometheus::Gauge* in_flight = nullptr;
  };
  // A door's own labels: no series has one door's endpoint and another's code.
  struct Door {
    std::string protocol;
    LabelSet endpoints, codes;
    std::string usual_code;              // empty: none
    std::vector<Endpoint> numbers = {};  // by endpoint
  };
  size_t DoorOf(std::string_view protocol) const;
  const Endpoint& EndpointOf(std::string_view endpoint, std::string_view protocol) const;
  prometheus::Counter* Ended(const RequestEnd& end);

  const bool vllm_;
  prometheus::Registry registry_;
  const LabelSet reasons_, rejections_;
  std::vector<Door> doors_;  // the last one: of any other protocol
  std::vector<prometheus::Counter*> rejected_;
  prometheus::Gauge* connections_;
  prometheus::Histogram* tokenize_;
  absl::flat_hash_map<std::string, std::unique_ptr<ModelMetrics>> models_;  // fixed
  std::once_flag other_made_;  // no series before there is something else to count
  std::unique_ptr<ModelMetrics> other_;

  std::mutex mutex_;  // not absl::Mutex: the thread sanitizer does not see into Debian's
  // By door, endpoint, code and reason.
  absl::flat_hash_map<std::array<size_t, 4>, prometheus::Counter*> ended_;
  std::function<void(Metrics&)> refresh_;
};

// Families renamed to what vLLM calls them, for --metrics-compat=vllm.
std::vector<prometheus::MetricFamily> VllmFamilies(
    const std::vector<prometheus::MetricFamily>& families);

// process_* of /proc/self, as Prometheus clients name them.
std::vector<prometheus::MetricFamily> ProcessFamilies();

}  // namespace cuvil::ops
