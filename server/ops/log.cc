#include "server/ops/log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/ops/escape.h"
#include "server/ops/values.h"

namespace cuvil::ops {
namespace {

constexpr std::string_view kLevelNames[] = {"debug", "info", "warning", "error", "off"};
constexpr spdlog::level::level_enum kSpdlogLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                       spdlog::level::warn, spdlog::level::err,
                                                       spdlog::level::off};

// Lines of one kind: this many at once, then so many a second. Life-cycle events are few by nature
// and share one generous rate; requests are as many as clients send.
struct EventRow {
  std::string_view name;
  double burst, per_s;
};
constexpr EventRow kEvents[kEventCount] = {
    {"start", 50, 5},      {"listen", 50, 5},    {"ready", 50, 5},   {"drain", 50, 5},
    {"stop", 50, 5},       {"config", 50, 5},    {"model", 100, 10}, {"load", 100, 10},
    {"request", 500, 200}, {"rejected", 50, 10}, {"stats", 10, 2},   {"watchdog", 10, 1},
    {"service", 10, 1},    {"internal", 50, 10}};

constexpr std::string_view kKeys[] = {"request_id",
                                      "answer_id",
                                      "model",
                                      "tenant",
                                      "endpoint",
                                      "protocol",
                                      "method",
                                      "peer",
                                      "code",
                                      "finish_reason",
                                      "reason",
                                      "state",
                                      "phase",
                                      "streamed",
                                      "prompt_tokens",
                                      "cached_tokens",
                                      "generated_tokens",
                                      "trimmed_tokens",
                                      "preemptions",
                                      "bytes_in",
                                      "bytes_out",
                                      "queue_s",
                                      "prefill_s",
                                      "first_token_s",
                                      "prepare_s",
                                      "total_s",
                                      "seconds",
                                      "running",
                                      "waiting",
                                      "kv_usage",
                                      "tokens_per_s",
                                      "threads",
                                      "memory_bytes",
                                      "http",
                                      "grpc",
                                      "version",
                                      "file",
                                      "detail"};
static_assert(std::size(kKeys) == static_cast<size_t>(Key::kDetail) + 1);

// Lines that wait for a slow reader: a few megabytes at most.
constexpr size_t kQueuedLinesMax = 8192;
// A sentence of ours may be longer than a name.
constexpr size_t kDetailBytesMax = 1024;

int64_t SystemNowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string Timestamp(int64_t us, bool date) {
  const std::time_t seconds = us / 1000000;
  std::tm t{};
  gmtime_r(&seconds, &t);
  std::string text;
  if (date)
    absl::StrAppendFormat(&text, "%04d-%02d-%02dT", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday);
  absl::StrAppendFormat(&text, "%02d:%02d:%02d.%03dZ", t.tm_hour, t.tm_min, t.tm_sec,
                        static_cast<int>(us / 1000 % 1000));
  return text;
}

std::string NumberText(double value) {
  // JSON has no word for these; a log line says something rather than nothing.
  return std::isfinite(value) ? absl::StrFormat("%.6g", value) : "-1";
}

bool IsEmpty(const Field& field) {
  const auto* text = std::get_if<std::string_view>(&field.value);
  return text != nullptr && text->empty();
}

// The value, quoted when it is text: as JSON, or for people only when it needs it.
std::string ValueText(const Field& field, bool json) {
  if (const auto* whole = std::get_if<int64_t>(&field.value)) return absl::StrCat(*whole);
  if (const auto* real = std::get_if<double>(&field.value)) return NumberText(*real);
  if (const auto* flag = std::get_if<bool>(&field.value)) return *flag ? "true" : "false";
  const std::string_view raw = std::get<std::string_view>(field.value);
  const std::string text =
      EscapeForLog(raw, field.key == Key::kDetail ? kDetailBytesMax : kLogValueBytesMax);
  const bool bare = !json && text.find_first_of(" =\"\\") == text.npos;
  return bare ? text : absl::StrCat("\"", text, "\"");
}

std::string JsonLine(int64_t now_us, Level level, Event event, absl::Span<const Field> fields,
                     int64_t suppressed) {
  std::string line = absl::StrCat("{\"ts\":\"", Timestamp(now_us, true), "\",\"level\":\"",
                                  Sv(kLevelNames[static_cast<int>(level)]), "\",\"event\":\"",
                                  Sv(EventName(event)), "\"");
  for (const Field& field : fields) {
    if (IsEmpty(field)) continue;
    absl::StrAppend(&line, ",\"", Sv(KeyName(field.key)), "\":", ValueText(field, true));
  }
  if (suppressed > 0) absl::StrAppend(&line, ",\"suppressed\":", suppressed);
  return line + "}";
}

std::string TextLine(int64_t now_us, Event event, absl::Span<const Field> fields,
                     int64_t suppressed) {
  std::string line = absl::StrFormat("%s %-8s", Timestamp(now_us, false), EventName(event));
  for (const Field& field : fields) {
    if (IsEmpty(field)) continue;
    absl::StrAppend(&line, " ", Sv(KeyName(field.key)), "=", ValueText(field, false));
  }
  if (suppressed > 0) absl::StrAppend(&line, " suppressed=", suppressed);
  return line;
}

std::shared_ptr<spdlog::sinks::sink> MakeSink(const LogOptions& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (options.stream != nullptr) {
    sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*options.stream);
  } else if (options.json) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  }
  sink->set_pattern(options.json ? "%v" : "%^%L%$ %v");
  return sink;
}

}  // namespace

absl::StatusOr<Level> ParseLevel(std::string_view name) {
  const auto* found = std::find(std::begin(kLevelNames), std::end(kLevelNames), name);
  if (found == std::end(kLevelNames)) {
    return absl::InvalidArgumentError(absl::StrCat("no log level is called '", Sv(name), "'"));
  }
  return static_cast<Level>(found - std::begin(kLevelNames));
}

std::string_view EventName(Event event) { return kEvents[static_cast<int>(event)].name; }
std::string_view KeyName(Key key) { return kKeys[static_cast<int>(key)]; }

absl::StatusOr<LogOptions> LogOptionsOf(const Config& config) {
  LogOptions options;
  ASSIGN_OR_RETURN(options.level, ParseLevel(config.log_level));
  RETURN_IF_ERROR(CheckChoice(config.log_format, "auto|json|text"));
  const bool terminal = isatty(STDERR_FILENO) == 1;
  options.json = config.log_format == "json" || (config.log_format == "auto" && !terminal);
  options.async = true;
  return options;
}

Logger::Logger(const LogOptions& options)
    : json_(options.json),
      level_(options.level),
      now_us_(options.now_us ? options.now_us : SystemNowUs) {
  const std::shared_ptr<spdlog::sinks::sink> sink = MakeSink(options);
  if (options.async) {
    pool_ = std::make_shared<spdlog::details::thread_pool>(kQueuedLinesMax, 1);
    out_ = std::make_shared<spdlog::async_logger>("cuvil", sink, pool_,
                                                  spdlog::async_overflow_policy::overrun_oldest);
  } else {
    out_ = std::make_shared<spdlog::logger>("cuvil", sink);
  }
  out_->set_level(spdlog::level::trace);
  // A log that cannot be written (disk full, closed pipe) is no reason to stop serving.
  out_->set_error_handler([](const std::string&) {});
}

Logger::~Logger() { Flush(); }

bool Logger::Admit(Event event, int64_t now_us, int64_t* suppressed) {
  const EventRow& row = kEvents[static_cast<int>(event)];
  std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_[static_cast<int>(event)];
  if (bucket.tokens < 0) bucket.tokens = row.burst;
  // A clock that was set back adds nothing.
  const double passed_s = std::max<int64_t>(0, now_us - bucket.at_us) / 1e6;
  if (bucket.at_us != 0) bucket.tokens = std::min(row.burst, bucket.tokens + passed_s * row.per_s);
  bucket.at_us = now_us;
  if (bucket.tokens < 1) {
    ++bucket.suppressed;
    return false;
  }
  bucket.tokens -= 1;
  *suppressed = std::exchange(bucket.suppressed, 0);
  return true;
}

void Logger::Write(Level level, Event event, absl::Span<const Field> fields) {
  if (!Enabled(level)) return;
  const int64_t now_us = now_us_();
  int64_t suppressed = 0;
  if (!Admit(event, now_us, &suppressed)) return;
  const std::string line = json_ ? JsonLine(now_us, level, event, fields, suppressed)
                                 : TextLine(now_us, event, fields, suppressed);
  out_->log(kSpdlogLevels[static_cast<int>(level)],
            spdlog::string_view_t(line.data(), line.size()));
}

void Logger::Flush() { out_->flush(); }

}  // namespace cuvil::ops
