// N streamed completions at once over loopback, read by one thread that looks for event ends and
// parses nothing else, so that it takes as little as it can of the cores the server runs on; its
// own CPU time is part of the report.
//
//   http_load HOST:PORT STREAMS PROMPT_TOKENS GENERATE [SEED]
//
// Prompts are random token ids. Prints one JSON object:
//   first_token_s[]   per stream, from the moment all requests were written
//   window_tok_s      rate over the time in which all streams decode
//   gaps_ms           quantiles of the time between events of one stream, in that window
//   cpu_s, wall_s     of this program
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/http_client.h"

namespace cuvil::bench {
namespace {

constexpr int64_t kReplyMax = int64_t{64} << 20;  // bytes of one stream

struct Stream {
  int fd = -1;
  bool done = false;
  std::string tail;  // the end of what came before, for ends split over reads
  std::string head;  // until the first event, for errors
  int64_t bytes = 0;
  std::vector<double> events;  // when each came
};

absl::StatusOr<int> Connect(const Address& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.socket), sizeof(address.socket)) != 0)
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address.host));
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return fd;
}

// Ends of events in the bytes: "\n\n" after a data line. `at` is when they came.
absl::Status Take(Stream& s, std::string_view bytes, double at) {
  s.bytes += static_cast<int64_t>(bytes.size());
  if (s.bytes > kReplyMax) return absl::ResourceExhaustedError("a stream sent more than 64 MiB");
  if (s.events.empty()) s.head.append(bytes.substr(0, 4096));
  const std::string text = s.tail + std::string(bytes);
  size_t from = 0;
  for (size_t end; (end = text.find("\n\n", from)) != std::string::npos; from = end + 2) {
    const std::string_view event = std::string_view(text).substr(from, end - from);
    const size_t data = event.rfind("data: ");
    if (data == std::string_view::npos) continue;
    if (event.substr(data).starts_with("data: [DONE]")) {
      s.done = true;
      continue;
    }
    if (event.find("\"error\"") != std::string_view::npos)
      return absl::InternalError(absl::StrCat("the server says: ", Sv(event.substr(data, 300))));
    s.events.push_back(at);
  }
  s.tail = text.substr(from);
  return absl::OkStatus();
}

absl::StatusOr<Json> Run(const std::string& server, int count, int prompt, int generate, int seed) {
  ASSIGN_OR_RETURN(const Address address, AddressOf(server));
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<Stream> streams(count);
  std::vector<std::string> requests;
  for (Stream& s : streams) {
    ASSIGN_OR_RETURN(s.fd, Connect(address));
    s.events.reserve(generate + 8);
    requests.push_back(
        CompletionRequest(address.host, prompt, generate, "", ",\"stream\":true", random));
  }
  for (int i = 0; i < count; ++i) {
    if (write(streams[i].fd, requests[i].data(), requests[i].size()) !=
        static_cast<ssize_t>(requests[i].size()))
      return absl::UnavailableError("cannot send a request");
  }
  const double start = Now(), cpu = CpuSeconds();
  std::vector<pollfd> polls;
  std::vector<Stream*> by_poll;
  std::string buffer(1 << 16, 0);
  for (;;) {
    polls.clear();
    by_poll.clear();
    for (Stream& s : streams) {
      if (s.done) continue;
      polls.push_back({s.fd, POLLIN, 0});
      by_poll.push_back(&s);
    }
    if (polls.empty()) break;
    if (poll(polls.data(), polls.size(), 120'000) <= 0)
      return absl::DeadlineExceededError("nothing came for two minutes");
    const double at = Now();
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      const ssize_t n = read(polls[i].fd, buffer.data(), buffer.size());
      if (n <= 0) {
        return absl::UnavailableError(
            absl::StrCat("a stream ended early: ", by_poll[i]->head.substr(0, 400)));
      }
      RETURN_IF_ERROR(Take(*by_poll[i], {buffer.data(), static_cast<size_t>(n)}, at));
    }
  }
  const double end = Now();
  // The first event of a completion already holds text; all decode from the last first event to
  // the first last one.
  double from = 0, to = end;
  Json first = Json::array();
  for (const Stream& s : streams) {
    if (s.events.empty()) return absl::InternalError("a stream had no event");
    close(s.fd);
    first.push_back(s.events.front() - start);
    from = std::max(from, s.events.front());
    to = std::min(to, s.events.back());
  }
  int64_t events = 0, in_window = 0;
  std::vector<double> gaps;
  for (const Stream& s : streams) {
    events += static_cast<int64_t>(s.events.size());
    for (size_t i = 1; i < s.events.size(); ++i) {
      if (s.events[i] <= from || s.events[i] > to) continue;
      ++in_window;
      gaps.push_back((s.events[i] - s.events[i - 1]) * 1e3);
    }
  }
  std::sort(gaps.begin(), gaps.end());
  auto quantile = [&](double q) {
    return gaps.empty() ? 0.0 : gaps[static_cast<size_t>(q * static_cast<double>(gaps.size() - 1))];
  };
  // A token whose text is held back has no event of its own: what it says comes with the next one.
  const double tokens_per_event =
      static_cast<double>(count) * generate / static_cast<double>(events);
  return Json{{"streams", count},
              {"prompt", prompt},
              {"generate", generate},
              {"events", events},
              {"first_token_s", first},
              {"window_s", to - from},
              {"window_tok_s", static_cast<double>(in_window) * tokens_per_event / (to - from)},
              {"gaps_ms", {{"p50", quantile(0.5)}, {"p99", quantile(0.99)}, {"max", quantile(1)}}},
              {"cpu_s", CpuSeconds() - cpu},
              {"wall_s", end - start}};
}

int Main(int argc, char** argv) {
  int count = 0, prompt = 0, generate = 0, seed = 1;
  if (argc < 5 || argc > 6 || !absl::SimpleAtoi(argv[2], &count) ||
      !absl::SimpleAtoi(argv[3], &prompt) || !absl::SimpleAtoi(argv[4], &generate) ||
      (argc == 6 && !absl::SimpleAtoi(argv[5], &seed)) || count < 1 || prompt < 1 || generate < 1) {
    std::fprintf(stderr, "usage: http_load HOST:PORT STREAMS PROMPT_TOKENS GENERATE [SEED]\n");
    return 2;
  }
  const auto result = Run(argv[1], count, prompt, generate, seed);
  if (!result.ok()) {
    std::fprintf(stderr, "http_load: %s\n", std::string(result.status().message()).c_str());
    return 1;
  }
  std::printf("%s\n", WriteJson(*result).c_str());
  return 0;
}

}  // namespace
}  // namespace cuvil::bench

int main(int argc, char** argv) { return cuvil::bench::Main(argc, argv); }
