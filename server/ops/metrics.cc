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

std::vector<std::string> Codes() {
  std::vector<std::string> codes;
  for (int code : {200, 204, 400, 401, 403, 404, 405, 408, 409, 411, 413,
                   415, 417, 422, 429, 431, 499, 500, 501, 503, 504, 505}) {
    codes.push_back(absl::StrCat(code));
  }
  for (int code = 0; code <= 16; ++code) {  // "OK" and so on, as gRPC has them
    codes.push_back(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  return codes;
}

// Counters are there at zero before their first event, or rate() would miss it.
constexpr std::string_view kUsualReasons[] = {"", "stop", "length"};

}  // namespace

Metrics::Metrics(const MetricsOptions& options)
    : vllm_(options.vllm),
      endpoints_(options.endpoints),
      protocols_({"http", "grpc"}),
      codes_(Codes()),
      reasons_({"", "stop", "length", "tool_calls", "abort", "deadline", "error"}),
      rejections_({"protocol", "auth", "quota", "not_found", "invalid", "too_large", "too_long",
                   "queue_full", "unavailable", "draining", "connections", "timeout", "deadline"}) {
  for (size_t e = 0; e < endpoints_.size(); ++e) {
    for (size_t p = 0; p < protocols_.size(); ++p) {
      const prometheus::Labels labels = {{"endpoint", endpoints_[e]}, {"protocol", protocols_[p]}};
      doors_.push_back({MakeCounter(&registry_, "cuvild_requests_started_total",
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
  for (size_t e = 0; e < endpoints_.size(); ++e) {
    for (const std::string_view reason : kUsualReasons) {
      Ended(
          {.endpoint = endpoints_[e], .protocol = "http", .code = "200", .finish_reason = reason});
    }
  }
}

Metrics::~Metrics() = default;

Metrics::Door& Metrics::DoorOf(std::string_view endpoint, std::string_view protocol) {
  return doors_[endpoints_.Index(endpoint) * protocols_.size() + protocols_.Index(protocol)];
}

void Metrics::RequestStarted(std::string_view endpoint, std::string_view protocol) {
  const Door& door = DoorOf(endpoint, protocol);
  door.started->Increment();
  door.in_flight->Increment();
}

prometheus::Counter* Metrics::Ended(const RequestEnd& end) {
  const size_t e = endpoints_.Index(end.endpoint), p = protocols_.Index(end.protocol);
  const size_t c = codes_.Index(end.code), r = reasons_.Index(end.finish_reason);
  const size_t key = ((e * protocols_.size() + p) * codes_.size() + c) * reasons_.size() + r;
  std::lock_guard lock(mutex_);
  prometheus::Counter*& counter = ended_[key];
  if (counter == nullptr) {
    counter = MakeCounter(&registry_, "cuvild_requests_total", "Requests that ended",
                          {{"endpoint", endpoints_[e]},
                           {"protocol", protocols_[p]},
                           {"code", codes_[c]},
                           {"finish_reason", reasons_[r]}});
  }
  return counter;
}

void Metrics::RequestEnded(const RequestEnd& end) {
  Ended(end)->Increment();
  DoorOf(end.endpoint, end.protocol).in_flight->Decrement();
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
