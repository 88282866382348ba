#include "server/ops/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "server/ops/values.h"

namespace cuvil::ops {
namespace {

constexpr const char* kVariables[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};

// A line of its own would be a field of its own.
std::string OneLine(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return line;
}

}  // namespace

absl::StatusOr<ServiceManager> ServiceManager::Create(
    const std::map<std::string, std::string>& variables, int64_t pid) {
  const auto value = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  ServiceManager manager;
  std::string address = value("NOTIFY_SOCKET");
  if (address.empty()) return manager;
  const bool path = address.front() == '/', abstract = address.front() == '@';
  if ((!path && !abstract) || address.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET '", address,
                     "' is neither a path nor an abstract socket (@…) "
                     "of fewer than ",
                     sizeof(sockaddr_un::sun_path), " bytes"));
  }
  if (abstract) address.front() = '\0';
  manager.address_ = std::move(address);

  const std::string interval = value("WATCHDOG_USEC"), owner = value("WATCHDOG_PID");
  // Inherited from a parent that is watched itself: not for us.
  if (interval.empty() || (!owner.empty() && owner != absl::StrCat(pid))) return manager;
  const absl::StatusOr<int64_t> microseconds = ParseCount(interval);
  if (!microseconds.ok() || *microseconds <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("WATCHDOG_USEC '", interval, "' is not a number of microseconds"));
  }
  manager.watchdog_ = std::chrono::microseconds(*microseconds);
  return manager;
}

absl::StatusOr<ServiceManager> ServiceManager::FromEnvironment() {
  std::map<std::string, std::string> variables;
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return Create(variables, getpid());
}

absl::Status ServiceManager::Send(std::string_view message) const {
  if (!present()) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("no socket to notify the service manager: ", std::strerror(errno)));
  }
  const ssize_t sent = sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), size);
  const int error = errno;
  close(fd);
  if (sent == static_cast<ssize_t>(message.size())) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the service manager's socket takes no message: ", std::strerror(error)));
}

absl::Status ServiceManager::Ready(std::string_view status) const {
  return Send(absl::StrCat("READY=1\nSTATUS=", OneLine(status), "\n"));
}

absl::Status ServiceManager::Stopping(std::string_view status) const {
  return Send(absl::StrCat("STOPPING=1\nSTATUS=", OneLine(status), "\n"));
}

absl::Status ServiceManager::Watchdog() const { return Send("WATCHDOG=1\n"); }

absl::Status ServiceManager::ExtendTimeout(std::chrono::microseconds more) const {
  return Send(absl::StrCat("EXTEND_TIMEOUT_USEC=", more.count(), "\n"));
}

}  // namespace cuvil::ops
