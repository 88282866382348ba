// In a program that is not linked with gRPC.
#include "server/grpc/module/module.h"

#include <arpa/inet.h>
#include <link.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::grpc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

bool IsGrpcLoaded() {
  const auto names_grpc = [](dl_phdr_info* info, size_t, void*) {
    return std::string_view(info->dlpi_name).find("libgrpc") == std::string_view::npos ? 0 : 1;
  };
  return dl_iterate_phdr(names_grpc, nullptr) != 0;
}

// The first bytes that the server sends to a client of HTTP/2.
std::string Greeting(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::string preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  EXPECT_EQ(write(fd, preface.data(), preface.size()), static_cast<ssize_t>(preface.size()));
  std::string frame(9, '\0');
  EXPECT_EQ(recv(fd, frame.data(), frame.size(), MSG_WAITALL), 9);
  close(fd);
  return frame;
}

TEST(GrpcModule, IsLoadedWhenAskedForAndServes) {
  EXPECT_FALSE(IsGrpcLoaded());
  const auto entry = LoadModule();
  ASSERT_EQ(entry.status(), absl::OkStatus());
  EXPECT_TRUE(IsGrpcLoaded());
  EXPECT_THAT((*entry)->methods(), Contains("/cuvil.v1.Cuvil/Generate"));

  FakeBackend backend;
  Options options;
  options.port = 0;
  auto server = (*entry)->start(options, {}, &backend);
  ASSERT_EQ(server.status(), absl::OkStatus());
  const std::string address = (*server)->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  EXPECT_EQ(Greeting(static_cast<uint16_t>(port))[3], 4) << "no SETTINGS frame";
  EXPECT_TRUE((*server)->Drain(absl::Seconds(10)));
}

TEST(GrpcModule, ErrorsComeAsTheyAreMade) {
  const auto entry = LoadModule();
  ASSERT_EQ(entry.status(), absl::OkStatus());
  FakeBackend backend;
  Options options;
  options.host = "no address";
  const absl::Status status = (*entry)->start(options, {}, &backend).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'no address'"));
}

}  // namespace
}  // namespace cuvil::server::grpc
