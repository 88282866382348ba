#include "server/ops/engine_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace cuvil::ops {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class EngineReporterTest : public testing::Test {
 protected:
  EngineReporterTest()
      : metrics_({.models = {"m"}}),
        log_({.json = true, .stream = &out_}),
        reporter_({.models = {"m"}, .watchdog_s = 10, .now = [this] { return now_; }}, &metrics_,
                  &log_) {}

  EngineReporter::Time now_{seconds(1000)};
  std::ostringstream out_;
  Metrics metrics_;
  Logger log_;
  EngineReporter reporter_;
};

TEST_F(EngineReporterTest, ReportsBecomeNumbers) {
  reporter_.OnStep("m", {.rows = 3, .decode_rows = 3, .sequences = 3, .step_s = 0.01}, {});
  reporter_.OnInterToken("m", 0.02);
  reporter_.OnRequestEnd("m", server::FinishReason::kStop,
                         {.prompt_tokens = 7, .completion_tokens = 5},
                         {.queue_s = 0.1, .first_token_s = 0.2, .prefill_s = 0.1, .total_s = 1});
  reporter_.OnStep("stranger", {.rows = 1}, {});
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("cuvild_step_seconds_count{model=\"m\",phase=\"decode\"} 1"));
  EXPECT_THAT(text, HasSubstr("cuvild_inter_token_seconds_count{model=\"m\"} 1"));
  EXPECT_THAT(text, HasSubstr("cuvild_prompt_tokens_total{model=\"m\"} 7"));
  EXPECT_THAT(text, HasSubstr("cuvild_step_seconds_count{model=\"other\",phase=\"prefill\"} 1"));
  EXPECT_THAT(text, Not(HasSubstr("stranger")));
}

TEST_F(EngineReporterTest, StatesAndLoadsAreLogged) {
  reporter_.OnModelState("m", server::ModelState::kFailed, "the file is gone");
  reporter_.OnLoadPhase("m", "compile", 1.5);
  EXPECT_THAT(out_.str(),
              HasSubstr(R"("level":"error","event":"model","model":"m","state":"failed",)"
                        R"("detail":"the file is gone")"));
  EXPECT_THAT(out_.str(),
              HasSubstr(R"("event":"load","model":"m","phase":"compile","seconds":1.5)"));
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("cuvild_model_state{model=\"m\",state=\"failed\"} 1"));
  EXPECT_THAT(text, HasSubstr("cuvild_model_loads_total{model=\"m\",outcome=\"failed\"} 1"));
  EXPECT_THAT(text, HasSubstr("cuvild_compile_seconds_count{model=\"m\"} 1"));
}

// It was one more change to "sleeping".
TEST_F(EngineReporterTest, AFailedWakeUpIsCountedAndAnError) {
  reporter_.OnModelState("m", server::ModelState::kSleeping, "");
  EXPECT_THAT(out_.str(), Not(HasSubstr("error")));
  reporter_.OnModelState("m", server::ModelState::kSleeping, "no room");
  EXPECT_THAT(out_.str(), HasSubstr(R"("level":"error","event":"model","model":"m",)"
                                    R"("state":"sleeping","detail":"no room")"));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("cuvild_model_loads_total{model=\"m\",outcome=\"failed\"} 1"));
}

TEST_F(EngineReporterTest, AStuckStepIsBlamedOnItsModelOnce) {
  reporter_.OnStepBegin("m");
  EXPECT_TRUE(reporter_.CheckAlive(0, true));
  now_ += seconds(11);
  EXPECT_FALSE(reporter_.CheckAlive(0, true));
  EXPECT_FALSE(reporter_.CheckAlive(0, true));
  EXPECT_THAT(metrics_.Text(), HasSubstr("cuvild_watchdog_trips_total{model=\"m\"} 1"));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("cuvild_watchdog_trips_total{model=\"other\"}")));
  reporter_.OnStep("m", {}, {});
  EXPECT_TRUE(reporter_.CheckAlive(1, false));
  EXPECT_THAT(out_.str(), HasSubstr("\"state\":\"stalled\",\"seconds\":11"));
  EXPECT_THAT(out_.str(), HasSubstr("\"state\":\"recovered\""));
}

// A model answers before its last layers have landed. From a slow disk they took longer than the
// limit, and the server was killed for it.
TEST_F(EngineReporterTest, AStepThatWaitsForWeightsIsNotStuck) {
  reporter_.OnModelState("m", server::ModelState::kReady, "");
  reporter_.OnStepBegin("m");
  for (int i = 0; i < 5; ++i) {
    now_ += seconds(9);
    EXPECT_TRUE(reporter_.CheckAlive(0, true)) << i;
  }
  reporter_.OnWeightsSettled("m");
  now_ += seconds(9);
  EXPECT_TRUE(reporter_.CheckAlive(0, true));
  now_ += seconds(2);
  EXPECT_FALSE(reporter_.CheckAlive(0, true));
  EXPECT_THAT(metrics_.Text(), HasSubstr("cuvild_watchdog_trips_total{model=\"m\"} 1"));
}

TEST_F(EngineReporterTest, WorkWithoutStepsTripsAndAnUnloadedModelDoesNot) {
  EXPECT_TRUE(reporter_.CheckAlive(3, true));
  now_ += seconds(11);
  EXPECT_FALSE(reporter_.CheckAlive(3, true));
  EXPECT_THAT(metrics_.Text(), HasSubstr("cuvild_watchdog_trips_total{model=\"other\"} 1"));
  EXPECT_TRUE(reporter_.CheckAlive(3, false));
  reporter_.OnStepBegin("m");
  reporter_.OnModelState("m", server::ModelState::kUnloaded, "");
  now_ += seconds(100);
  EXPECT_TRUE(reporter_.CheckAlive(3, false));
}

TEST_F(EngineReporterTest, StatsAreWrittenWhileThereIsWork) {
  reporter_.LogStats({});
  EXPECT_EQ(out_.str(), "");
  reporter_.OnStep("m", {.rows = 40, .decode_rows = 8, .prefill_rows = 32}, {});
  now_ += seconds(4);
  reporter_.LogStats({.running = 8, .waiting = 1, .pages_total = 10, .pages_used = 5});
  EXPECT_THAT(out_.str(), HasSubstr(R"("running":8,"waiting":1,"kv_usage":0.5,"tokens_per_s":2,)"));
  out_.str("");
  reporter_.LogStats({});
  EXPECT_EQ(out_.str(), "");
}

}  // namespace
}  // namespace cuvil::ops
