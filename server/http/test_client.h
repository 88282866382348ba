// A client for tests that sends any bytes and waits no longer than a few seconds for an answer.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/status.h"

namespace cuvil::server::http {

struct Reply {
  int status = 0;  // 0: the connection ended before a head
  std::string head, body;
  bool complete = false;  // the body came to its declared end

  // The value of a header, by its name in any case.
  std::string Get(std::string_view name) const {
    const std::string lower = absl::AsciiStrToLower(head);
    const std::string key = absl::StrCat("\r\n", absl::AsciiStrToLower(Sv(name)), ": ");
    const size_t at = lower.find(key);
    if (at == std::string::npos) return "";
    const size_t from = at + key.size();
    return head.substr(from, head.find("\r\n", from) - from);
  }
};

class TestClient {
 public:
  // "127.0.0.1:1234".
  explicit TestClient(const std::string& address, int receive_buffer = 0) {
    const size_t colon = address.rfind(':');
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    CUVIL_CHECK(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
  }
  ~TestClient() { Close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  // False when the server no longer takes bytes.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd wait{fd_, POLLOUT, 0};
      if (poll(&wait, 1, kWaitMs) <= 0) return false;
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) continue;
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Close();
  }

  // Whether more came; false at the end of the connection or after the wait.
  bool ReadMore(int wait_ms = kWaitMs) {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, wait_ms) <= 0) return false;
    char bytes[65536];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }
  // Until `text` has come; what is before and with it stays in buffer().
  bool ReadUntil(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  // Whether the server closed the connection, having sent nothing more.
  bool Ended() {
    while (!ended_ && ReadMore()) {
    }
    return ended_ && buffer_.empty();
  }
  const std::string& buffer() const { return buffer_; }

  // The next answer; heads of 1xx are skipped unless asked for.
  Reply Read(bool without_body = false, bool informational = false) {
    Reply reply;
    if (!ReadUntil("\r\n\r\n")) return reply;
    const size_t end = buffer_.find("\r\n\r\n");
    reply.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    reply.status = std::atoi(reply.head.c_str() + 9);
    if (reply.status < 200 && !informational) return Read(without_body);
    if (reply.status < 200 || reply.status == 204 || without_body) {
      reply.complete = true;
    } else if (reply.Get("transfer-encoding") == "chunked") {
      reply.complete = ReadChunks(&reply.body);
    } else if (!reply.Get("content-length").empty()) {
      const auto length = static_cast<size_t>(std::atoll(reply.Get("content-length").c_str()));
      while (buffer_.size() < length && ReadMore()) {
      }
      reply.complete = buffer_.size() >= length;
      reply.body = buffer_.substr(0, length);
      buffer_.erase(0, length);
    } else {
      while (ReadMore()) {
      }
      reply.complete = ended_;
      reply.body = std::exchange(buffer_, "");
    }
    return reply;
  }

  Reply Ask(std::string_view request) {
    Send(request);
    return Read();
  }

 private:
  static constexpr int kWaitMs = 5000;

  bool ReadChunks(std::string* body) {
    for (;;) {
      if (!ReadUntil("\r\n")) return false;
      const size_t size = std::strtoull(buffer_.c_str(), nullptr, 16);
      buffer_.erase(0, buffer_.find("\r\n") + 2);
      while (buffer_.size() < size + 2) {
        if (!ReadMore()) return false;
      }
      body->append(buffer_, 0, size);
      buffer_.erase(0, size + 2);
      if (size == 0) return true;
    }
  }

  int fd_ = -1;
  bool ended_ = false;
  std::string buffer_;
};

inline std::string Get(std::string_view path, std::string_view fields = "") {
  return absl::StrCat("GET ", Sv(path), " HTTP/1.1\r\nHost: localhost\r\n", Sv(fields), "\r\n");
}

inline std::string Post(std::string_view path, std::string_view body,
                        std::string_view fields = "") {
  return absl::StrCat("POST ", Sv(path), " HTTP/1.1\r\nHost: localhost\r\n",
                      "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n",
                      Sv(fields), "\r\n", Sv(body));
}

// The payloads of "data:" lines.
inline std::vector<std::string> SseData(std::string_view body) {
  std::vector<std::string> data;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    const std::string_view event = body.substr(0, end);
    if (event.starts_with("data: ")) data.emplace_back(event.substr(6));
    if (end == std::string_view::npos) break;
    body.remove_prefix(end + 2);
  }
  return data;
}

}  // namespace cuvil::server::http
