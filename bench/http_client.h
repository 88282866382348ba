// What the load generators have in common: they speak just enough HTTP to ask for completions.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cuvil::bench {

// Ids that a vocabulary of any size has; control tokens come first, so not those.
inline constexpr int kFirstToken = 1000, kTokens = 20000;

// Seconds of CLOCK_MONOTONIC, which is also Python's time.monotonic().
inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this process so far.
inline double CpuSeconds() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

struct Address {
  std::string host;
  sockaddr_in socket = {};
};

// `text` is IPV4:PORT.
inline absl::StatusOr<Address> AddressOf(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  Address address{.host = text.substr(0, colon)};
  address.socket.sin_family = AF_INET;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > 65535 || inet_pton(AF_INET, address.host.c_str(), &address.socket.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no IPV4:PORT"));
  }
  address.socket.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A greedy completion of `generate` tokens for a prompt of random ones. `headers` and `fields` are
// further lines ("name: value\r\n") and fields (",\"name\":value").
inline std::string CompletionRequest(const std::string& host, int prompt, int generate,
                                     const std::string& headers, const std::string& fields,
                                     std::mt19937& random) {
  std::string body = "{\"prompt\":[";
  for (int i = 0; i < prompt; ++i)
    absl::StrAppend(&body, i > 0 ? "," : "", kFirstToken + random() % kTokens);
  absl::StrAppend(&body, "],\"max_tokens\":", generate, ",\"ignore_eos\":true,\"temperature\":0",
                  fields, "}");
  return absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: ", host,
                      "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(), "\r\n",
                      headers, "\r\n", body);
}

}  // namespace cuvil::bench
