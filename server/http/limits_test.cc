// Limits as their settings and sentences promise: "none" is none, and a refusal says its number.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/http/server.h"
#include "server/http/test_client.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::http {
namespace {

constexpr char kStream[] =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":2})";

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() { options_.port = 0; }
  void Start() {
    auto server = Server::Start(options_, {}, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Reply Ask(const std::string& request) { return TestClient(server_->address()).Ask(request); }

  FakeBackend backend_;
  Options options_;
  std::unique_ptr<Server> server_;
};

TEST_F(LimitsTest, NoPingIntervalIsNoPing) {
  options_.ping_interval = absl::ZeroDuration();
  options_.write_timeout = absl::Milliseconds(20);
  Start();
  backend_.set_held(true);
  TestClient client(server_->address());
  client.Send(Post("/v1/chat/completions", kStream));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  backend_.set_held(false);
  const Reply reply = client.Read();
  EXPECT_EQ(reply.body.find("keep-alive"), std::string::npos) << reply.body.size();
  ASSERT_TRUE(reply.complete);
  EXPECT_EQ(SseData(reply.body).back(), "[DONE]");
}

TEST_F(LimitsTest, ALoneBodyOfTheSizeAllowedFits) {
  options_.body_bytes_max = 5000;
  options_.all_bodies_bytes_max = 3000;
  Start();
  const std::string body =
      absl::StrCat("{\"x\":\"", std::string(4000, 'x'), "\",\"prompt\":\"a\"}");
  EXPECT_EQ(Ask(Post("/tokenize", body)).status, 200);
}

// A client that is turned away learns how far it went and how far it may go.
TEST_F(LimitsTest, RefusalsSayTheirNumbers) {
  options_.body_bytes_max = 60000;
  options_.connections_max = 1;
  Start();
  TestClient idle(server_->address());
  EXPECT_EQ(idle.Ask(Get("/health")).status, 200);
  EXPECT_NE(Ask(Get("/v1/models")).body.find("the server has its 1 connections"),
            std::string::npos);
  idle.Close();
  const std::string post =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  std::string many, tiny;
  for (int i = 0; i < 200; ++i) many += "a: b\r\n";
  for (int i = 0; i < 55000; ++i) tiny += "1\r\nx\r\n";
  const struct {
    std::string request;
    int status;
    const char* says;
  } cases[] = {
      {Get("/" + std::string(9000, 'a')), 414, "has 9014 bytes, and 8192 is the most"},
      {Get("/health", many), 431, "has 201 header lines, and 128 is the most"},
      {post + "Content-Length: 1234567890123456789\r\n\r\n", 413, "has 19 digits, and 18 is"},
      {post + "Content-Length: 70000\r\n\r\n", 413, "has 70000 bytes, and 60000 is the most"},
      {chunked + "ffff\r\n", 413, "the chunked body is over 60000 bytes"},
      {chunked + "ffffffffffffffff\r\n", 413, "a chunk's size over 15 digits"},
      {chunked + tiny, 413, "framing over 262144 bytes"},
      {chunked + "0\r\nT: " + std::string(9000, 't') + "\r\n\r\n", 413, "trailers over 8192 bytes"},
  };
  for (const auto& one : cases) {
    Reply reply;
    // The connection that is closed a moment ago may still count.
    for (int i = 0; i < 100; ++i) {
      reply = Ask(one.request);
      if (reply.status != 503) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(reply.status, one.status) << reply.body;
    EXPECT_NE(reply.body.find(one.says), std::string::npos) << reply.body;
  }
}

TEST_F(LimitsTest, ATimeoutBeyondADayIsTheServersOwn) {
  options_.request_timeout = absl::Seconds(100);
  Start();
  const auto ask = [&](const std::string& seconds) {
    return Ask(Post("/v1/chat/completions", kStream,
                    absl::StrCat("x-request-timeout: ", seconds, "\r\n")));
  };
  for (const char* more : {"100.5", "86400", "86401", "1e300", "inf"}) {
    EXPECT_EQ(ask(more).status, 200) << more;
    EXPECT_EQ(backend_.last_request().deadline_ms, 100'000) << more;
  }
  EXPECT_EQ(ask("2.5").status, 200);
  EXPECT_EQ(backend_.last_request().deadline_ms, 2500);
  for (const std::string bad : {"0", "-1", "nan", "soon", "5s"}) {
    const Reply reply = ask(bad);
    EXPECT_EQ(reply.status, 400) << bad;
    EXPECT_NE(reply.body.find(absl::StrCat("not '", bad, "'")), std::string::npos) << reply.body;
  }
  EXPECT_LT(ask(std::string(9000, 'x')).body.size(), 400u);
}

// Neither no pings nor rare ones may put the check off.
TEST_F(LimitsTest, WhoReadsNothingIsCutOffWhateverThePings) {
  for (const absl::Duration ping : {absl::ZeroDuration(), absl::Hours(1)}) {
    options_.ping_interval = ping;
    options_.write_timeout = absl::Milliseconds(100);
    options_.backlog_bytes_max = size_t{64} << 20;
    Start();
    // More than the system buffers for it, and then a model that goes on for long.
    backend_.set_script([](const GenerateRequest&) {
      std::vector<Events> steps(10000);
      steps[0].tokens.push_back(
          {.token = {.id = ByteToken('a')}, .text = std::string(size_t{32} << 20, 'a')});
      return steps;
    });
    TestClient silent(server_->address(), /*receive_buffer=*/4096);
    const int before = backend_.aborts;
    silent.Send(Post("/v1/chat/completions", kStream));
    for (int i = 0; i < 500 && backend_.aborts == before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(backend_.aborts, before + 1);
    server_.reset();
  }
}

}  // namespace
}  // namespace cuvil::server::http
