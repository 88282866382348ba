#include "server/ops/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "server/ops/escape.h"

namespace cuvil::ops {
namespace {

using testing::HasSubstr;
using testing::Not;

// 2026-08-01T12:34:56.789Z
constexpr int64_t kNow = 1785587696789000;

class LogTest : public testing::Test {
 protected:
  std::unique_ptr<Logger> Make(bool json, Level level = Level::kInfo, bool async = false) {
    return std::make_unique<Logger>(
        LogOptions{.json = json, .level = level, .async = async, .stream = &out_, .now_us = [this] {
                     return now_us_;
                   }});
  }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    std::istringstream in(out_.str());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  std::ostringstream out_;
  int64_t now_us_ = kNow;
};

TEST_F(LogTest, JsonLinesHaveTheFieldsAndNothingEmpty) {
  Make(true)->Info(Event::kRequest, {{Key::kRequestId, "req-1"},
                                     {Key::kModel, std::string("smollm2")},
                                     {Key::kTenant, ""},
                                     {Key::kCode, 200},
                                     {Key::kStreamed, true},
                                     {Key::kPromptTokens, int64_t{12}},
                                     {Key::kTotalS, 0.25}});
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0], R"({"ts":"2026-08-01T12:34:56.789Z","level":"info","event":"request",)"
                        R"("request_id":"req-1","model":"smollm2","code":200,"streamed":true,)"
                        R"("prompt_tokens":12,"total_s":0.25})");
  EXPECT_TRUE(ParseJson(Lines()[0]).ok());
}

TEST_F(LogTest, TextIsForPeople) {
  Make(false)->Warn(Event::kModel, {{Key::kModel, "smol"}, {Key::kDetail, "file is \"gone\""}});
  EXPECT_EQ(Lines()[0], R"(W 12:34:56.789Z model    model=smol detail="file is \"gone\"")");
}

TEST_F(LogTest, LevelsAreALowerBound) {
  auto log = Make(true, Level::kWarning);
  log->Info(Event::kStats, {});
  log->Debug(Event::kStats, {});
  log->Error(Event::kInternal, {});
  EXPECT_EQ(Lines().size(), 1u);
  EXPECT_THAT(Lines()[0], HasSubstr("\"level\":\"error\""));
  Make(true, Level::kOff)->Error(Event::kInternal, {});
  EXPECT_EQ(Lines().size(), 1u);
}

TEST_F(LogTest, HostileValuesStayOnOneLineAndInert) {
  const std::string hostile[] = {
      "a\r\nINFO fake", "\x1b[31mred",         std::string("nul\0x", 5), "\u2028line",
      "\u202egnp.exe",  "\u2066isolate\u2069", "\xff\xfe broken",        "\"},{\"event\":\"x\"",
      "back\\slash",    "\u0085next\u009b",    "\ufeff\u200bzero"};
  for (bool json : {true, false}) {
    for (const std::string& text : hostile) {
      out_.str("");
      Make(json)->Info(Event::kRequest, {{Key::kModel, text}, {Key::kRequestId, text}});
      const std::string written = out_.str();
      ASSERT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
      for (const char* raw : {"\r", "\x1b", "\u2028", "\u202e", "\u2066", "\u2069", "\xff",
                              "\u0085", "\u009b", "\ufeff", "\u200b"}) {
        EXPECT_THAT(written, Not(HasSubstr(raw)));
      }
      EXPECT_EQ(written.find('\0'), std::string::npos);
      if (!json) continue;
      const absl::StatusOr<Json> parsed = ParseJson(written);
      ASSERT_TRUE(parsed.ok()) << written;
      EXPECT_EQ(parsed->size(), 5u);
      EXPECT_EQ((*parsed)["event"], "request");
    }
  }
}

TEST_F(LogTest, LongValuesAreCutAtACharacter) {
  EXPECT_EQ(EscapeForLog(std::string(1000, 'x')), std::string(256, 'x') + "…");
  EXPECT_EQ(EscapeForLog("ééé", 5), "éé…");
  EXPECT_EQ(EscapeForLog("ééé", 6), "ééé");
  EXPECT_EQ(EscapeForLog("模型 naïve"), "模型 naïve");
}

TEST_F(LogTest, AFloodOfOneKindLeavesRoomForOthers) {
  auto log = Make(true);
  for (int i = 0; i < 10000; ++i) log->Warn(Event::kRejected, {{Key::kReason, "queue_full"}});
  EXPECT_EQ(Lines().size(), 50u);
  log->Info(Event::kReady, {});
  EXPECT_EQ(Lines().size(), 51u);
  now_us_ += 1000000;
  for (int i = 0; i < 100; ++i) log->Warn(Event::kRejected, {});
  ASSERT_EQ(Lines().size(), 61u);
  EXPECT_THAT(Lines()[51], HasSubstr("\"suppressed\":9950"));
  EXPECT_THAT(Lines()[52], Not(HasSubstr("suppressed")));
  now_us_ -= 3600000000;  // the clock is set back: no burst, no crash
  log->Warn(Event::kRejected, {});
  EXPECT_EQ(Lines().size(), 61u);
}

TEST_F(LogTest, NumbersThatAreNoneStayJson) {
  Make(true)->Info(Event::kStats, {{Key::kKvUsage, 0.0 / 0.0}, {Key::kTokensPerS, 1e308 * 10}});
  EXPECT_TRUE(ParseJson(Lines()[0]).ok()) << Lines()[0];
}

TEST_F(LogTest, AsyncLinesFromManyThreadsAllArriveWhole) {
  auto log = Make(true, Level::kInfo, true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) log->Info(Event::kRequest, {{Key::kRequestId, "r"}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  log.reset();
  EXPECT_EQ(Lines().size(), 400u);
  for (const std::string& line : Lines()) EXPECT_TRUE(ParseJson(line).ok());
}

TEST_F(LogTest, OptionsComeFromTheConfiguration) {
  Config config;
  config.log_format = "json";
  config.log_level = "error";
  EXPECT_TRUE(LogOptionsOf(config)->json);
  EXPECT_EQ(LogOptionsOf(config)->level, Level::kError);
  config.log_format = "text";
  EXPECT_FALSE(LogOptionsOf(config)->json);
  config.log_level = "loud";
  EXPECT_FALSE(LogOptionsOf(config).ok());
}

TEST_F(LogTest, NamesAreUnique) {
  std::set<std::string_view> keys, events;
  for (int i = 0; i <= static_cast<int>(Key::kDetail); ++i) {
    EXPECT_TRUE(keys.insert(KeyName(static_cast<Key>(i))).second);
  }
  for (int i = 0; i < kEventCount; ++i) {
    EXPECT_TRUE(events.insert(EventName(static_cast<Event>(i))).second);
  }
  EXPECT_EQ(KeyName(Key::kDetail), "detail");
  EXPECT_EQ(KeyName(Key::kTotalS), "total_s");
  EXPECT_EQ(EventName(Event::kInternal), "internal");
}

}  // namespace
}  // namespace cuvil::ops
