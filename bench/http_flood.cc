// Requests that come whether or not the server keeps up, or from clients that ask again when they
// are answered; each on a connection of its own, which is given up at its deadline. One thread that
// reads no more of an answer than its head, so that it takes little of the cores the server runs
// on.
//
//   http_flood HOST:PORT rate=R|clients=N SECONDS PROMPT_TOKENS GENERATE DEADLINE_S [SEED]
//
// rate: open loop, R requests per second with exponential gaps; clients: closed loop of N. New ones
// begin for SECONDS, those that run are waited for. Answers have GENERATE/2 .. GENERATE*3/2 tokens,
// or all would end together. Prints one JSON object:
//   replies[]   [began, took, status, tokens, retry_after]: CLOCK_MONOTONIC and seconds; status 0:
//               given up at the deadline, -1: refused or cut; retry_after: 1 with that header
//   cpu_s       of this program
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/json.h"
#include "bench/http_client.h"

namespace cuvil::bench {
namespace {

constexpr size_t kHeadMax = 4096;      // bytes of an answer that are looked at
constexpr size_t kInFlightMax = 8192;  // open files

struct Options {
  Address address;
  double rate = 0;  // open loop where above 0
  int clients = 0;
  double seconds = 0, deadline = 0;
  int prompt = 0, generate = 0, seed = 1;
};

struct Reply {
  double began = 0, took = 0;
  int status = 0, tokens = 0;
  bool retry_after = false;
};

struct Request {
  int fd = -1;
  Reply reply;
  bool sent = false;
  std::string text;  // to send; then the head of the answer
  int64_t bytes = 0;
};

class Flood {
 public:
  explicit Flood(const Options& options)
      : options_(options),
        random_(static_cast<uint32_t>(options.seed)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Flood() { close(epoll_); }

  absl::Status Run();
  const std::vector<Reply>& replies() const { return replies_; }

 private:
  using Key = std::pair<double, size_t>;  // deadline, slot

  absl::Status Begin(double now);
  absl::Status Send(Request& request);
  void OnInput(size_t slot, double now);
  void End(size_t slot, int status, double now);

  const Options& options_;
  std::mt19937 random_;
  int epoll_;
  std::vector<std::unique_ptr<Request>> in_flight_;  // by slot; null: free
  std::vector<size_t> free_;
  size_t running_ = 0;
  std::priority_queue<Key, std::vector<Key>, std::greater<Key>> deadlines_;
  std::vector<Reply> replies_;
};

absl::Status Flood::Begin(double now) {
  if (running_ >= kInFlightMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kInFlightMax, " requests at once; lower the rate"));
  if (free_.empty()) {
    free_.push_back(in_flight_.size());
    in_flight_.emplace_back();
  }
  const size_t slot = free_.back();
  free_.pop_back();
  in_flight_[slot] = std::make_unique<Request>();
  ++running_;
  Request& request = *in_flight_[slot];
  const int half = options_.generate / 2;
  request.reply.began = now;
  request.reply.tokens =
      half + static_cast<int>(random_() % static_cast<uint32_t>(options_.generate + 1));
  request.text = CompletionRequest(
      options_.address.host, options_.prompt, std::max(1, request.reply.tokens),
      absl::StrCat("Connection: close\r\nx-request-timeout: ", options_.deadline, "\r\n"), "",
      random_);
  deadlines_.emplace(now + options_.deadline, slot);
  request.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  setsockopt(request.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  const int failed =
      connect(request.fd, reinterpret_cast<const sockaddr*>(&options_.address.socket),
              sizeof(options_.address.socket));
  if (request.fd < 0 || (failed != 0 && errno != EINPROGRESS)) {
    End(slot, -1, now);
    return absl::OkStatus();
  }
  epoll_event event = {.events = EPOLLOUT, .data = {.u64 = slot}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, request.fd, &event) != 0)
    return absl::InternalError("cannot wait for a connection");
  return absl::OkStatus();
}

// REQUIRES: the connection is there, or failed.
absl::Status Flood::Send(Request& request) {
  const ssize_t n = send(request.fd, request.text.data(), request.text.size(), MSG_NOSIGNAL);
  if (n < 0) return absl::UnavailableError("");
  if (n != static_cast<ssize_t>(request.text.size()))
    return absl::InternalError("a request does not fit the socket's buffer; shorten the prompt");
  request.text.clear();
  request.sent = true;
  return absl::OkStatus();
}

// An answer is whole when as much of it came as its head says.
int StatusOf(const Request& request, bool* retry_after) {
  const size_t end = request.text.find("\r\n\r\n");
  if (end == std::string::npos || request.text.size() < 12) return -1;
  const std::string head = absl::AsciiStrToLower(request.text.substr(0, end + 2));
  const size_t length = head.find("\r\ncontent-length: ");
  if (length == std::string::npos) return -1;
  const int64_t body = std::atoll(head.c_str() + length + 18);
  if (request.bytes != body + static_cast<int64_t>(end) + 4) return -1;
  *retry_after = absl::StrContains(head, "\r\nretry-after: ");
  return std::atoi(request.text.c_str() + 9);
}

void Flood::OnInput(size_t slot, double now) {
  Request& request = *in_flight_[slot];
  static std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t n = read(request.fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      return End(slot, n < 0 ? -1 : StatusOf(request, &request.reply.retry_after), now);
    }
    request.bytes += n;
    if (request.text.size() < kHeadMax) request.text.append(buffer.data(), static_cast<size_t>(n));
  }
}

// The request is gone with it.
void Flood::End(size_t slot, int status, double now) {
  Request& request = *in_flight_[slot];
  if (request.fd >= 0) close(request.fd);
  request.reply.status = status;
  request.reply.took = now - request.reply.began;
  replies_.push_back(request.reply);
  in_flight_[slot].reset();
  free_.push_back(slot);
  --running_;
}

absl::Status Flood::Run() {
  std::exponential_distribution<double> gap(options_.rate > 0 ? options_.rate : 1);
  const double until = Now() + options_.seconds;
  double next = Now();
  std::array<epoll_event, 64> events;
  for (;;) {
    double now = Now();
    if (options_.rate > 0) {
      for (; next <= now && next < until; next += gap(random_)) RETURN_IF_ERROR(Begin(now));
    } else {
      while (now < until && running_ < static_cast<size_t>(options_.clients))
        RETURN_IF_ERROR(Begin(now));
    }
    if (now >= until && running_ == 0) return absl::OkStatus();
    double wake = options_.rate > 0 && next < until ? next : now + 1;
    if (now < until) wake = std::min(wake, until);
    if (!deadlines_.empty()) wake = std::min(wake, deadlines_.top().first);
    // Rounded up: a sleep that is too short spins.
    const int wait_ms = std::max(0, static_cast<int>((wake - now) * 1e3) + 1);
    const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                                 wake <= now ? 0 : wait_ms);
    now = Now();
    for (int i = 0; i < ready; ++i) {
      const size_t slot = events[i].data.u64;
      Request& request = *in_flight_[slot];
      if (request.sent) {
        OnInput(slot, now);
        continue;
      }
      const absl::Status sent = Send(request);
      if (absl::IsInternal(sent)) return sent;
      if (!sent.ok()) {
        End(slot, -1, now);
        continue;
      }
      epoll_event event = {.events = EPOLLIN, .data = {.u64 = slot}};
      epoll_ctl(epoll_, EPOLL_CTL_MOD, request.fd, &event);
    }
    for (; !deadlines_.empty() && deadlines_.top().first <= now; deadlines_.pop()) {
      const auto [deadline, slot] = deadlines_.top();
      // The slot may be free, or another request's by now.
      const Request* request = in_flight_[slot].get();
      if (request != nullptr && request->reply.began + options_.deadline <= deadline)
        End(slot, 0, now);
    }
  }
}

absl::StatusOr<Options> Parse(int argc, char** argv) {
  Options options;
  const absl::Status usage = absl::InvalidArgumentError(
      "usage: http_flood HOST:PORT rate=R|clients=N SECONDS PROMPT_TOKENS GENERATE DEADLINE_S "
      "[SEED]");
  if (argc < 7 || argc > 8) return usage;
  ASSIGN_OR_RETURN(options.address, AddressOf(argv[1]));
  const std::string load = argv[2];
  const bool loads = load.starts_with("rate=")
                         ? absl::SimpleAtod(load.substr(5), &options.rate) && options.rate > 0
                     : load.starts_with("clients=")
                         ? absl::SimpleAtoi(load.substr(8), &options.clients) && options.clients > 0
                         : false;
  if (!loads || !absl::SimpleAtod(argv[3], &options.seconds) ||
      !absl::SimpleAtoi(argv[4], &options.prompt) ||
      !absl::SimpleAtoi(argv[5], &options.generate) ||
      !absl::SimpleAtod(argv[6], &options.deadline) ||
      (argc == 8 && !absl::SimpleAtoi(argv[7], &options.seed)) || options.prompt < 1 ||
      options.generate < 2 || options.deadline <= 0) {
    return usage;
  }
  return options;
}

int Main(int argc, char** argv) {
  const auto options = Parse(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  // A shell's usual limit of open files is 1,024.
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, kInFlightMax + 64);
  setrlimit(RLIMIT_NOFILE, &files);
  Flood flood(*options);
  if (const absl::Status status = flood.Run(); !status.ok()) {
    std::fprintf(stderr, "http_flood: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  Json replies = Json::array();
  for (const Reply& r : flood.replies())
    replies.push_back({r.began, r.took, r.status, r.tokens, r.retry_after ? 1 : 0});
  std::printf("%s\n", WriteJson({{"replies", replies}, {"cpu_s", CpuSeconds()}}).c_str());
  return 0;
}

}  // namespace
}  // namespace cuvil::bench

int main(int argc, char** argv) { return cuvil::bench::Main(argc, argv); }
