// The daemon's log: one line per event on stderr, JSON for machines or text for people. Events and
// keys are closed lists, and there is no key for what a user wrote: prompts, answers, messages and
// tool arguments cannot be logged. Values are escaped (escape.h), each event kind has a rate, and a
// slow reader of the log never holds up the caller: with `async`, the oldest lines are dropped.
// Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/types/span.h"
#include "base/status.h"
#include "server/ops/config.h"

namespace spdlog {
class logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace cuvil::ops {

enum class Level : uint8_t { kDebug, kInfo, kWarning, kError, kOff };
absl::StatusOr<Level> ParseLevel(std::string_view name);  // as in config: "debug" … "off"

enum class Event : uint8_t {
  kStart,     // process begins: version, sizing, configuration file
  kListen,    // bound addresses
  kReady,     // takes requests
  kDrain,     // SIGTERM: finishes what runs
  kStop,      // last line
  kConfig,    // a warning about the configuration
  kModel,     // a model changed state
  kLoad,      // a phase of a load
  kRequest,   // a request ended
  kRejected,  // a request was turned away
  kStats,     // every few seconds while there is work
  kWatchdog,  // steps make no progress, or do again
  kService,   // the service manager
  kInternal,  // a failure that is ours
};
inline constexpr int kEventCount = static_cast<int>(Event::kInternal) + 1;
std::string_view EventName(Event event);

enum class Key : uint8_t {
  kRequestId,
  kAnswerId,
  kModel,
  kTenant,
  kEndpoint,
  kProtocol,
  kMethod,
  kPeer,
  kCode,
  kFinishReason,
  kReason,
  kState,
  kPhase,
  kStreamed,
  kPromptTokens,
  kCachedTokens,
  kGeneratedTokens,
  kTrimmedTokens,
  kPreemptions,
  kBytesIn,
  kBytesOut,
  kQueueS,
  kPrefillS,
  kFirstTokenS,
  kPrepareS,
  kTotalS,
  kSeconds,
  kRunning,
  kWaiting,
  kKvUsage,
  kTokensPerS,
  kThreads,
  kMemoryBytes,
  kHttp,
  kGrpc,
  kVersion,
  kFile,
  kDetail,  // a sentence of ours about the server itself; never about a request's content
};
std::string_view KeyName(Key key);

struct Field {
  Key key;
  std::variant<int64_t, double, bool, std::string_view> value;

  template <typename T>
  Field(Key k, const T& v) : key(k) {
    if constexpr (std::is_same_v<T, bool>) {
      value = v;
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<int64_t>(v);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<double>(v);
    } else if constexpr (std::is_same_v<T, absl::string_view>) {
      value = Sv(v);
    } else {
      value = std::string_view(v);
    }
  }
};

struct LogOptions {
  bool json = true;
  Level level = Level::kInfo;
  bool async = false;
  std::ostream* stream = nullptr;   // null: stderr. For tests
  std::function<int64_t()> now_us;  // since 1970; empty: the system's clock
};
// log_format "auto" is text when stderr is a terminal; async, as a daemon wants it.
absl::StatusOr<LogOptions> LogOptionsOf(const Config& config);

class Logger {
 public:
  explicit Logger(const LogOptions& options);
  ~Logger();  // writes what is queued
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // Fields without meaning for the event are left out by the caller; an empty string field is not
  // written.
  void Write(Level level, Event event, absl::Span<const Field> fields);
  void Debug(Event event, std::initializer_list<Field> f) { Write(Level::kDebug, event, f); }
  void Info(Event event, std::initializer_list<Field> f) { Write(Level::kInfo, event, f); }
  void Warn(Event event, std::initializer_list<Field> f) { Write(Level::kWarning, event, f); }
  void Error(Event event, std::initializer_list<Field> f) { Write(Level::kError, event, f); }

  bool Enabled(Level level) const { return level >= level_ && level_ != Level::kOff; }
  void Flush();

 private:
  struct Bucket {
    double tokens = -1;  // -1: not used yet, so full
    int64_t at_us = 0;
    int64_t suppressed = 0;
  };
  // True when the event may be written now; then how many of its kind were not since the last.
  bool Admit(Event event, int64_t now_us, int64_t* suppressed);

  const bool json_;
  const Level level_;
  const std::function<int64_t()> now_us_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::logger> out_;
  std::mutex mutex_;  // not absl::Mutex: the thread sanitizer does not see into Debian's
  std::array<Bucket, kEventCount> buckets_;
};

}  // namespace cuvil::ops
