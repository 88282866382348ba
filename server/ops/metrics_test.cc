#include "server/ops/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "prometheus/metric_family.h"

namespace cuvil::ops {
namespace {

using server::FinishReason;
using server::ModelState;
using testing::HasSubstr;
using testing::Not;

MetricsOptions Options(bool vllm = false) {
  return {.models = {"smol", "big"},
          .http_routes = {"/v1/chat/completions", "/v1/models", "/metrics"},
          .grpc_methods = {"/cuvil.v1.Cuvil/Generate"},
          .http_codes = {"200", "202", "429", "499"},
          .vllm = vllm,
          .version = "1.2.3",
          .commit = "abc"};
}

// The value of `name{labels}` in the text, or -1.
double Value(const std::string& text, const std::string& series) {
  const size_t at = text.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::strtod(&text[at + series.size() + 2], nullptr);
}

// The sum over all series of a family.
double Sum(Metrics& metrics, const std::string& name) {
  double sum = 0;
  for (const auto& family : metrics.Collect()) {
    if (family.name != name) continue;
    for (const auto& metric : family.metric) {
      sum += family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                            : metric.gauge.value;
    }
  }
  return sum;
}

const char* TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Histogram:
      return "histogram";
    default:
      return "other";
  }
}

// Dashboards, alerts and routers read these names: a change here is a change for them.
TEST(MetricsTest, NamesTypesAndLabelsAreAContract) {
  Metrics metrics(Options(true));
  metrics.Model("smol").SetLoad({.pages_total = 4, .page_tokens = 32});
  std::set<std::string> lines;
  for (const auto& family : metrics.Collect()) {
    ASSERT_FALSE(family.metric.empty()) << family.name << " appears only later";
    EXPECT_FALSE(family.help.empty()) << family.name;
    for (const auto& metric : family.metric) {
      std::set<std::string> labels;
      for (const auto& label : metric.label) labels.insert(label.name);
      lines.insert(absl::StrCat(family.name, " ", TypeName(family.type), " ",
                                labels.empty() ? "-" : absl::StrJoin(labels, ",")));
    }
  }
  const std::string written = absl::StrJoin(lines, "\n") + "\n";
  const std::string path =
      std::string(std::getenv("CUVIL_SOURCE_DIR")) + "/server/ops/metric_names.txt";
  if (std::getenv("CUVIL_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << written;
  const absl::StatusOr<std::string> golden = ReadFile(path, 1 << 20);
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(written, *golden) << "run with CUVIL_UPDATE_GOLDEN=1 when the change is meant";
}

TEST(MetricsTest, TheExpositionIsWellFormed) {
  Metrics metrics(Options(true));
  std::istringstream lines(metrics.Text());
  std::set<std::string> typed, series;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::string first, second, name;
    words >> first >> second >> name;
    if (first == "#") {
      if (second == "TYPE") EXPECT_TRUE(typed.insert(name).second) << line;
      continue;
    }
    EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_GT(count, 300);
}

TEST(MetricsTest, StartedIsEndedPlusInFlight) {
  Metrics metrics(Options());
  const std::string endpoints[] = {"/v1/chat/completions", "/v1/models", "/etc/passwd", ""};
  const std::string codes[] = {"200", "429", "499", "OK", "CANCELLED", "799", "x"};
  std::vector<std::thread> doors;
  std::atomic<int64_t> open{0};
  for (int t = 0; t < 4; ++t) {
    doors.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 500; ++i) {
        const std::string& endpoint = endpoints[random() % 4];
        const char* protocol = random() % 2 ? "http" : "grpc";
        metrics.RequestStarted(endpoint, protocol);
        if (random() % 10 == 0) {
          ++open;
          continue;
        }
        metrics.RequestEnded({.endpoint = endpoint,
                              .protocol = protocol,
                              .code = codes[random() % 7],
                              .finish_reason = random() % 2 ? "stop" : "whim"});
      }
    });
  }
  for (std::thread& door : doors) door.join();
  EXPECT_EQ(Sum(metrics, "cuvild_requests_started_total"), 2000);
  EXPECT_EQ(Sum(metrics, "cuvild_requests_in_flight"), static_cast<double>(open.load()));
  EXPECT_EQ(Sum(metrics, "cuvild_requests_total") + Sum(metrics, "cuvild_requests_in_flight"),
            Sum(metrics, "cuvild_requests_started_total"));
}

// Rates of a series miss its first event unless it is there before, and one that cannot be
// misleads.
TEST(MetricsTest, EachDoorHasItsOwnSeriesAtZero) {
  Metrics metrics(Options());
  const auto labels = [&](const std::string& name) {
    std::set<std::string> all;
    for (const auto& family : metrics.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        std::string line;
        for (const char* wanted : {"endpoint", "protocol", "code"}) {
          for (const auto& label : metric.label) {
            if (label.name == wanted) line += label.value + " ";
          }
        }
        all.insert(line);
      }
    }
    return all;
  };
  using testing::Contains;
  const std::set<std::string> started = labels("cuvild_requests_started_total");
  EXPECT_THAT(started, Contains("/v1/models http "));
  EXPECT_THAT(started, Contains("/cuvil.v1.Cuvil/Generate grpc "));
  EXPECT_THAT(started, Not(Contains("/v1/models grpc ")));
  EXPECT_THAT(started, Not(Contains("/cuvil.v1.Cuvil/Generate http ")));
  const std::set<std::string> ended = labels("cuvild_requests_total");
  EXPECT_THAT(ended, Contains("/v1/models http 200 "));
  EXPECT_THAT(ended, Contains("/cuvil.v1.Cuvil/Generate grpc OK "));
  EXPECT_THAT(ended, Not(Contains("/cuvil.v1.Cuvil/Generate http 200 ")));
  // An admin's 202 is a code of ours.
  metrics.RequestStarted("/v1/models", "http");
  metrics.RequestEnded({.endpoint = "/v1/models", .protocol = "http", .code = "202"});
  EXPECT_THAT(labels("cuvild_requests_total"), Contains("/v1/models http 202 "));
}

TEST(MetricsTest, WhatClientsChooseMakesNoSeries) {
  Metrics metrics(Options());
  metrics.Text();
  const auto series = [&] {
    size_t count = 0;
    for (const auto& family : metrics.Collect()) count += family.metric.size();
    return count;
  };
  const auto flood = [&](int i) {
    const std::string odd = "x" + std::to_string(i);
    metrics.RequestStarted(odd, odd);
    metrics.RequestEnded({.endpoint = odd, .protocol = odd, .code = odd, .finish_reason = odd});
    metrics.Rejected(odd);
    metrics.Model(odd).InterToken(0.1);
    metrics.Model("smol").LoadPhase(odd, 1);
  };
  flood(0);
  const size_t before = series();
  for (int i = 1; i < 200; ++i) flood(i);
  EXPECT_EQ(series(), before);
  const std::string text = metrics.Text();
  EXPECT_EQ(Value(text, "cuvild_requests_rejected_total{reason=\"other\"}"), 200);
  EXPECT_THAT(text, Not(HasSubstr("x17")));
}

TEST(MetricsTest, StepsAndTotalsAreCounted) {
  Metrics metrics(Options());
  ModelMetrics& model = metrics.Model("smol");
  model.Step({.rows = 40,
              .decode_rows = 8,
              .prefill_rows = 32,
              .sequences = 9,
              .step_s = 0.02,
              .load = {.running = 9,
                       .waiting = 2,
                       .pages_total = 100,
                       .pages_used = 25,
                       .pages_cached = 10,
                       .page_tokens = 32}},
             {.prefix_lookup_tokens = 100, .prefix_hit_tokens = 64, .preemptions = 1});
  model.Step({.rows = 8, .decode_rows = 8, .sequences = 8},
             {.prefix_lookup_tokens = 150, .prefix_hit_tokens = 64, .preemptions = 1});
  // Loaded anew: totals start over.
  model.Step({.rows = 16, .prefill_rows = 16, .sequences = 1}, {.prefix_lookup_tokens = 16});
  const std::string text = metrics.Text();
  EXPECT_EQ(Value(text, "cuvild_prefix_cache_queries_total{model=\"smol\"}"), 166);
  EXPECT_EQ(Value(text, "cuvild_prefix_cache_hits_total{model=\"smol\"}"), 64);
  EXPECT_EQ(Value(text, "cuvild_preemptions_total{model=\"smol\"}"), 1);
  for (const char* phase : {"prefill", "decode", "mixed"}) {
    EXPECT_EQ(Value(text, absl::StrCat("cuvild_step_seconds_count{model=\"smol\",phase=\"", phase,
                                       "\"}")),
              1)
        << phase;
  }
  EXPECT_EQ(Value(text, "cuvild_step_tokens_sum{model=\"smol\"}"), 64);
  EXPECT_EQ(Value(text, "cuvild_batch_size_sum{model=\"smol\"}"), 18);
}

TEST(MetricsTest, LoadIsShownAndThePoolDescribedOnce) {
  Metrics metrics(Options());
  ModelMetrics& model = metrics.Model("smol");
  model.SetLoad({.running = 9,
                 .waiting = 2,
                 .pages_total = 100,
                 .pages_used = 25,
                 .pages_cached = 10,
                 .page_tokens = 32});
  std::string text = metrics.Text();
  EXPECT_EQ(Value(text, "cuvild_requests_running{model=\"smol\"}"), 9);
  EXPECT_EQ(Value(text, "cuvild_requests_waiting{model=\"smol\"}"), 2);
  EXPECT_EQ(Value(text, "cuvild_kv_blocks_total{model=\"smol\"}"), 100);
  EXPECT_EQ(Value(text, "cuvild_kv_blocks_cached{model=\"smol\"}"), 10);
  EXPECT_EQ(Value(text, "cuvild_kv_cache_usage_ratio{model=\"smol\"}"), 0.25);
  EXPECT_THAT(text, HasSubstr("num_blocks=\"100\""));
  model.SetLoad({.pages_total = 200, .page_tokens = 32});
  text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("num_blocks=\"200\""));
  EXPECT_THAT(text, Not(HasSubstr("num_blocks=\"100\"")));
}

TEST(MetricsTest, RequestsEndOnceWithTheirTokensAndTimes) {
  Metrics metrics(Options());
  ModelMetrics& model = metrics.Model("big");
  model.RequestEnd(FinishReason::kStop,
                   {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 5},
                   {.queue_s = 1, .first_token_s = 3, .prefill_s = 2, .total_s = 7});
  model.RequestEnd(FinishReason::kAborted, {.prompt_tokens = 10}, {.queue_s = 1, .total_s = 1});
  model.RequestEnd(FinishReason::kDeadline, {.prompt_tokens = 10}, {.queue_s = 9, .total_s = 9});
  const std::string text = metrics.Text();
  const auto of = [&](const std::string& name) { return Value(text, name + "{model=\"big\"}"); };
  EXPECT_EQ(of("cuvild_prompt_tokens_total"), 30);
  EXPECT_EQ(of("cuvild_cached_prompt_tokens_total"), 4);
  EXPECT_EQ(of("cuvild_generated_tokens_total"), 5);
  EXPECT_EQ(of("cuvild_cancelled_total"), 1);
  EXPECT_EQ(of("cuvild_deadline_exceeded_total"), 1);
  EXPECT_EQ(of("cuvild_request_seconds_count"), 3);
  EXPECT_EQ(of("cuvild_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(of("cuvild_decode_seconds_sum"), 4);
  EXPECT_EQ(of("cuvild_inference_seconds_sum"), 6);
  EXPECT_EQ(of("cuvild_time_per_output_token_seconds_sum"), 1);
  EXPECT_EQ(Value(text, "cuvild_requests_finished_total{finish_reason=\"stop\",model=\"big\"}"), 1);
}

TEST(MetricsTest, AModelIsInOneState) {
  Metrics metrics(Options());
  metrics.Model("smol").SetState(ModelState::kLoading);
  metrics.Model("smol").SetState(ModelState::kReady);
  metrics.Model("smol").SetMemory(1, 2, 3, 4);
  EXPECT_EQ(Sum(metrics, "cuvild_model_state"), 1);
  EXPECT_EQ(Sum(metrics, "cuvild_memory_bytes"), 10);
  EXPECT_EQ(Value(metrics.Text(), "cuvild_model_state{model=\"smol\",state=\"ready\"}"), 1);
  EXPECT_EQ(Value(metrics.Text(), "cuvild_model_loads_total{model=\"smol\",outcome=\"ok\"}"), 1);
}

TEST(MetricsTest, VllmNamesFollowOurs) {
  Metrics plain(Options(false));
  EXPECT_THAT(plain.Text(), Not(HasSubstr("vllm:")));
  Metrics metrics(Options(true));
  metrics.Model("smol").SetLoad(
      {.running = 3, .waiting = 4, .pages_total = 8, .pages_used = 2, .page_tokens = 16});
  metrics.Model("smol").RequestEnd(FinishReason::kLength, {}, {});
  metrics.Model("stranger").SetLoad({.running = 1});
  const std::string text = metrics.Text();
  EXPECT_THAT(text, Not(HasSubstr("model_name=\"other\"")));
  EXPECT_EQ(Value(text, "vllm:num_requests_waiting{model_name=\"smol\",engine=\"0\"}"), 4);
  EXPECT_EQ(Value(text, "vllm:kv_cache_usage_perc{model_name=\"smol\",engine=\"0\"}"), 0.25);
  EXPECT_THAT(text, HasSubstr("vllm:cache_config_info{block_size=\"16\",model_name=\"smol\","
                              "num_gpu_blocks=\"8\",engine=\"0\"} 1"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{finished_reason=\"length\","
                              "model_name=\"smol\",engine=\"0\"} 1"));
}

TEST(MetricsTest, RefreshRunsBeforeEveryScrape) {
  Metrics metrics(Options());
  int calls = 0;
  metrics.SetRefresh([&](Metrics& m) { m.Model("smol").SetLoad({.running = ++calls}); });
  EXPECT_EQ(Value(metrics.Text(), "cuvild_requests_running{model=\"smol\"}"), 1);
  EXPECT_EQ(Value(metrics.Text(), "cuvild_requests_running{model=\"smol\"}"), 2);
}

TEST(MetricsTest, TheProcessIsDescribed) {
  std::map<std::string, double> values;
  for (const auto& family : ProcessFamilies()) {
    const auto& metric = family.metric[0];
    values[family.name] =
        family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  EXPECT_GE(values["process_threads"], 1);
  EXPECT_GE(values["process_open_fds"], 3);
  EXPECT_GT(values["process_max_fds"], 3);
  EXPECT_GT(values["process_resident_memory_bytes"], 1e6);
  EXPECT_GE(values["process_virtual_memory_bytes"], values["process_resident_memory_bytes"]);
  // After 2020: seconds since 1970, not since boot.
  EXPECT_GT(values["process_start_time_seconds"], 1577836800);
}

TEST(MetricsTest, ScrapesAndCountsMeet) {
  Metrics metrics(Options(true));
  std::thread steps([&] {
    server::EngineTotals totals;
    for (int i = 0; i < 300; ++i) {
      ++totals.preemptions;
      metrics.Model("smol").Step({.rows = 1, .load = {.pages_total = i, .page_tokens = 32}},
                                 totals);
      metrics.Model("smol").InterToken(0.01);
    }
  });
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(metrics.Text().empty());
  steps.join();
  EXPECT_EQ(Sum(metrics, "cuvild_preemptions_total"), 300);
}

TEST(LabelSetTest, UnknownIsOther) {
  const LabelSet set({"b", "a", "other", "b"});
  EXPECT_EQ(set.size(), 3u);
  EXPECT_EQ(set[set.Index("a")], "a");
  EXPECT_EQ(set[set.Index("b")], "b");
  EXPECT_EQ(set[set.Index("c")], "other");
  EXPECT_EQ(set[set.Index("other")], "other");
  EXPECT_EQ(set[set.Index("")], "other");
}

}  // namespace
}  // namespace cuvil::ops
