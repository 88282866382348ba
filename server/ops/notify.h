// The service manager's notification protocol (systemd Type=notify): short datagrams to the socket
// that NOTIFY_SOCKET names. Without one every call does nothing, so callers need not ask. Any
// thread; a call never blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cuvil::ops {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; `pid` is this process's. InvalidArgument
  // for a socket address or an interval that makes no sense.
  static absl::StatusOr<ServiceManager> Create(const std::map<std::string, std::string>& variables,
                                               int64_t pid);
  // From the process's own environment.
  static absl::StatusOr<ServiceManager> FromEnvironment();

  bool present() const { return !address_.empty(); }
  // Zero: nobody waits for signs of life. Else send Watchdog() at half this interval or more often.
  std::chrono::microseconds watchdog_interval() const { return watchdog_; }

  // Each fails with Unavailable when the manager's socket does not take the message.
  absl::Status Ready(std::string_view status) const;     // READY=1, with a line for its display
  absl::Status Stopping(std::string_view status) const;  // STOPPING=1
  absl::Status Watchdog() const;                         // WATCHDOG=1
  // Startup or shutdown takes `more` longer from now: EXTEND_TIMEOUT_USEC=.
  absl::Status ExtendTimeout(std::chrono::microseconds more) const;

 private:
  absl::Status Send(std::string_view message) const;

  std::string address_;  // of sockaddr_un: a path, or a NUL and a name
  std::chrono::microseconds watchdog_{0};
};

}  // namespace cuvil::ops
