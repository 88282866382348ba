#include "server/ops/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace cuvil::ops {
namespace {

// The manager's end: a bound datagram socket.
class Receiver {
 public:
  explicit Receiver(const std::string& name) : name_(name) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    bound_ = bind(fd_, reinterpret_cast<sockaddr*>(&address),
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())) == 0;
  }
  ~Receiver() {
    close(fd_);
    if (name_[0] == '/') unlink(name_.c_str());
  }
  bool bound() const { return bound_; }
  std::string Next() {
    char buffer[4096];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(buffer, static_cast<size_t>(size));
  }

 private:
  std::string name_;
  int fd_;
  bool bound_;
};

std::string Unique(const std::string& prefix) { return prefix + std::to_string(getpid()); }

TEST(ServiceManagerTest, MessagesReachAPathAndAnAbstractSocket) {
  for (const std::string& name :
       {Unique(testing::TempDir() + "/notify"), Unique("@cuvil-notify-")}) {
    Receiver receiver(name);
    ASSERT_TRUE(receiver.bound()) << name;
    const ServiceManager manager = *ServiceManager::Create({{"NOTIFY_SOCKET", name}}, 1);
    EXPECT_TRUE(manager.present());
    EXPECT_EQ(manager.watchdog_interval().count(), 0);
    EXPECT_TRUE(manager.Ready("serving smollm2").ok());
    EXPECT_EQ(receiver.Next(), "READY=1\nSTATUS=serving smollm2\n");
    EXPECT_TRUE(manager.Watchdog().ok());
    EXPECT_EQ(receiver.Next(), "WATCHDOG=1\n");
    EXPECT_TRUE(manager.ExtendTimeout(std::chrono::seconds(2)).ok());
    EXPECT_EQ(receiver.Next(), "EXTEND_TIMEOUT_USEC=2000000\n");
    EXPECT_TRUE(manager.Stopping("draining\nREADY=1").ok());
    EXPECT_EQ(receiver.Next(), "STOPPING=1\nSTATUS=draining READY=1\n");
  }
}

TEST(ServiceManagerTest, WithoutOneNothingHappens) {
  const ServiceManager manager = *ServiceManager::Create({{"WATCHDOG_USEC", "1000"}}, 1);
  EXPECT_FALSE(manager.present());
  EXPECT_EQ(manager.watchdog_interval().count(), 0);
  EXPECT_TRUE(manager.Ready("x").ok());
  EXPECT_TRUE(manager.Watchdog().ok());
}

TEST(ServiceManagerTest, AGoneManagerIsAnErrorNotACrash) {
  const ServiceManager manager =
      *ServiceManager::Create({{"NOTIFY_SOCKET", Unique(testing::TempDir() + "/gone")}}, 1);
  EXPECT_EQ(manager.Watchdog().code(), absl::StatusCode::kUnavailable);
}

TEST(ServiceManagerTest, TheWatchdogIntervalIsForTheNamedProcess) {
  const auto interval = [](const std::string& usec, const std::string& owner) {
    return ServiceManager::Create(
               {{"NOTIFY_SOCKET", "/run/x"}, {"WATCHDOG_USEC", usec}, {"WATCHDOG_PID", owner}}, 42)
        ->watchdog_interval()
        .count();
  };
  EXPECT_EQ(interval("30000000", "42"), 30000000);
  EXPECT_EQ(interval("30000000", ""), 30000000);
  EXPECT_EQ(interval("30000000", "43"), 0);
  EXPECT_EQ(interval("", "42"), 0);
}

TEST(ServiceManagerTest, NonsenseIsRefused) {
  for (const std::string& name :
       {std::string("relative"), std::string("vsock:2:1"), "/" + std::string(200, 'x')}) {
    EXPECT_FALSE(ServiceManager::Create({{"NOTIFY_SOCKET", name}}, 1).ok()) << name;
  }
  for (const char* usec : {"-1", "0", "soon", "99999999999999999999"}) {
    EXPECT_FALSE(
        ServiceManager::Create({{"NOTIFY_SOCKET", "/run/x"}, {"WATCHDOG_USEC", usec}}, 1).ok());
  }
}

}  // namespace
}  // namespace cuvil::ops
