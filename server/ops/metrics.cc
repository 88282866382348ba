#include "server/ops/metrics.h"

#include <algorithm>
#include <sstream>

#include "base/build_id.h"
#include "base/status.h"
#include "prometheus/text_serializer.h"
#include "server/ops/instruments.h"

namespace cuvil::ops {
namespace {

const prometheus::Histogram::BucketBoundaries kTokenize = {.0001, .00025, .0005, .001, .0025, .005,
                                                           .01,   .025,   .05,   .1,   .25,   1};

// "OK" and so on, as gRPC has them.
std::vector<std::string> GrpcCodes() {
  std::vector<std::string> codes;
  for (int code = 0; code <= 16; ++code) {
    codes.push_back(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  return codes;
}

// Counters are there at zero before their first event, or rate() would miss it.
constexpr std::string_view kUsualReasons[] = {"", "stop", "length"};

}  // namespace

Metrics::Metrics(const MetricsOptions& options)
    : vllm_(options.vllm),
      reasons_({"", "stop", "length", "tool_calls", "abort", "deadline", "error"}),
      rejections_({"protocol", "auth", "quota", "not_found", "invalid", "too_large", "too_long",
                   "queue_full", "unavailable", "draining", "connections", "timeout", "deadline"}) {
  doors_.push_back({.protocol = "http",
                    .endpoints = options.http_routes,
                    .codes = options.http_codes,
                    .usual_code = "200"});
  doors_.push_back({.protocol = "grpc",
                    .endpoints = options.grpc_methods,
                    .codes = GrpcCodes(),
                    .usual_code = "OK"});
  doors_.push_back({.protocol = "other",
                    .endpoints = std::vector<std::string>(),
                    .codes = std::vector<std::string>(),
                    .usual_code = ""});
  for (Door& door : doors_) {
    for (size_t e = 0; e < door.endpoints.size(); ++e) {
      const prometheus::Labels labels = {{"endpoint", door.endpoints[e]},
                                         {"protocol", door.protocol}};
      door.numbers.push_back({MakeCounter(&registry_, "cuvild_requests_started_total",
                                          "Requests that passed authorisation", labels),
                              MakeGauge(&registry_, "cuvild_requests_in_flight",
                                        "Requests started and not yet ended", labels)});
    }
  }
  for (size_t i = 0; i < rejections_.size(); ++i) {
    rejected_.push_back(MakeCounter(&registry_, "cuvild_requests_rejected_total",
                                    "Requests turned away before they reached a model",
                                    {{"reason", rejections_[i]}}));
  }
  connections_ = MakeGauge(&registry_, "cuvild_connections_open", "Open HTTP connections", {});
  tokenize_ = MakeHistogram(&registry_, "cuvild_tokenize_seconds",
                            "Parsing a request, its template and its tokens", {}, kTokenize);
  MakeGauge(&registry_, "cuvild_build_info", "1; its labels say what runs",
            {{"version", options.version}, {"commit", options.commit}, {"build_id", BuildId()}})
      ->Set(1);
  for (const std::string& model : options.models) {
    if (model != "other") models_.emplace(model, nullptr);
  }
  for (auto& [name, metrics] : models_) {
    metrics = std::make_unique<ModelMetrics>(&registry_, name);
  }
  for (const Door& door : doors_) {
    if (door.usual_code.empty()) continue;
    for (size_t e = 0; e < door.endpoints.size(); ++e) {
      for (const std::string_view reason : kUsualReasons) {
        Ended({.endpoint = door.endpoints[e],
               .protocol = door.protocol,
               .code = door.usual_code,
               .finish_reason = reason});
      }
    }
  }
}

Metrics::~Metrics() = default;

size_t Metrics::DoorOf(std::string_view protocol) const {
  size_t d = 0;
  while (d + 1 < doors_.size() && doors_[d].protocol != protocol) ++d;
  return d;
}

const Metrics::Endpoint& Metrics::EndpointOf(std::string_view endpoint,
                                             std::string_view protocol) const {
  const Door& door = doors_[DoorOf(protocol)];
  return door.numbers[door.endpoints.Index(endpoint)];
}

void Metrics::RequestStarted(std::string_view endpoint, std::string_view protocol) {
  const Endpoint& numbers = EndpointOf(endpoint, protocol);
  numbers.started->Increment();
  numbers.in_flight->Increment();
}

prometheus::Counter* Metrics::Ended(const RequestEnd& end) {
  const size_t d = DoorOf(end.protocol);
  const Door& door = doors_[d];
  const size_t e = door.endpoints.Index(end.endpoint), c = door.codes.Index(end.code);
  const size_t r = reasons_.Index(end.finish_reason);
  std::lock_guard lock(mutex_);
  prometheus::Counter*& counter = ended_[{d, e, c, r}];
  if (counter == nullptr) {
    counter = MakeCounter(&registry_, "cuvild_requests_total", "Requests that ended",
                          {{"endpoint", door.endpoints[e]},
                           {"protocol", door.protocol},
                           {"code", door.codes[c]},
                           {"finish_reason", reasons_[r]}});
  }
  return counter;
}

void Metrics::RequestEnded(const RequestEnd& end) {
  Ended(end)->Increment();
  EndpointOf(end.endpoint, end.protocol).in_flight->Decrement();
  if (end.prepare_s > 0) tokenize_->Observe(end.prepare_s);
}

void Metrics::Rejected(std::string_view reason) {
  rejected_[rejections_.Index(reason)]->Increment();
}

void Metrics::SetHttpConnections(int64_t open) { connections_->Set(static_cast<double>(open)); }

ModelMetrics& Metrics::Model(std::string_view name) {
  const auto found = models_.find(Sv(name));
  if (found != models_.end()) return *found->second;
  std::call_once(other_made_,
                 [&] { other_ = std::make_unique<ModelMetrics>(&registry_, "other"); });
  return *other_;
}

void Metrics::SetRefresh(std::function<void(Metrics&)> refresh) {
  std::lock_guard lock(mutex_);
  refresh_ = std::move(refresh);
}

std::vector<prometheus::MetricFamily> Metrics::Collect() {
  std::function<void(Metrics&)> refresh;
  {
    std::lock_guard lock(mutex_);
    refresh = refresh_;
  }
  if (refresh) refresh(*this);
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  std::vector<prometheus::MetricFamily> more = ProcessFamilies();
  if (vllm_) {
    std::vector<prometheus::MetricFamily> renamed = VllmFamilies(families);
    std::move(renamed.begin(), renamed.end(), std::back_inserter(more));
  }
  std::move(more.begin(), more.end(), std::back_inserter(families));
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return families;
}

std::string Metrics::Text() {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect());
  return out.str();
}

}  // namespace cuvil::ops
