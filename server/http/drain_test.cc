// The end of a server: running requests finish or are told, nothing is cut silently.
#include <string>
#include <thread>

#include "base/json.h"
#include "gtest/gtest.h"
#include "server/http/server.h"
#include "server/http/test_client.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::http {
namespace {

constexpr char kStream[] =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":4})";
constexpr char kWhole[] = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":4})";

class DrainTest : public testing::Test {
 protected:
  DrainTest() {
    Options options;
    options.port = 0;
    options.ping_interval = absl::Milliseconds(20);
    Hooks hooks;
    hooks.metrics = [] { return std::string("up 1\n"); };
    server_ = *Server::Start(options, hooks, &backend_);
  }
  // Waits until a request is in the backend and a stream's head is out.
  void Send(TestClient* client, std::string_view body) {
    const size_t before = backend_.running();
    client->Send(Post("/v1/chat/completions", body));
    while (backend_.running() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  FakeBackend backend_;
  std::unique_ptr<Server> server_;
};

TEST_F(DrainTest, RunningRequestsFinishNewOnesAreRefused) {
  backend_.set_held(true);
  TestClient idle(server_->address()), running(server_->address()), late(server_->address());
  EXPECT_EQ(idle.Ask(Get("/health")).status, 200);
  Send(&running, kStream);
  late.Send("GET /v1/models HTTP/1.1\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  bool by_itself = false;
  std::thread drain([&] { by_itself = server_->Drain(absl::Seconds(30)); });
  EXPECT_TRUE(idle.Ended());
  const Reply refused = late.Ask("Host: localhost\r\n\r\n");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Get("retry-after"), "5");
  EXPECT_EQ(refused.Get("connection"), "close");
  EXPECT_TRUE(late.Ended());
  const Reply probe = TestClient(server_->address()).Ask(Get("/readyz"));
  EXPECT_EQ(probe.status, 503);
  EXPECT_EQ((*ParseJson(probe.body))["status"], "draining");
  EXPECT_EQ(TestClient(server_->address()).Ask(Get("/livez")).status, 200);
  backend_.set_held(false);
  const Reply reply = running.Read();
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(SseData(reply.body).back(), "[DONE]");
  EXPECT_TRUE(running.Ended());
  drain.join();
  EXPECT_TRUE(by_itself);
}

TEST_F(DrainTest, MetricsAnswerUntilTheEnd) {
  backend_.set_held(true);
  TestClient running(server_->address());
  Send(&running, kStream);
  std::thread drain([&] { server_->Drain(absl::Seconds(30)); });
  while (TestClient(server_->address()).Ask(Get("/readyz")).status != 503) {
  }
  const Reply metrics = TestClient(server_->address()).Ask(Get("/metrics"));
  EXPECT_EQ(metrics.status, 200);
  EXPECT_EQ(metrics.body, "up 1\n");
  EXPECT_EQ(TestClient(server_->address()).Ask(Get("/v1/models")).status, 503);
  backend_.set_held(false);
  EXPECT_TRUE(running.Read().complete);
  drain.join();
}

// Of /tokenize, which needs no model's step, and of one whose client sends nothing more.
TEST_F(DrainTest, HalfSentBodiesDoNotHoldItUp) {
  const std::string whole = Post("/tokenize", R"({"prompt":"hello"})");
  TestClient silent(server_->address()), slow(server_->address()), chunked(server_->address());
  silent.Send(whole.substr(0, whole.size() - 5));
  slow.Send(whole.substr(0, whole.size() - 18));
  chunked.Send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n2\r\n{");
  EXPECT_EQ(TestClient(server_->address()).Ask(Get("/livez")).status, 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(server_->Drain(absl::Seconds(20)));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  for (TestClient* client : {&silent, &slow, &chunked}) {
    const Reply told = client->Read();
    EXPECT_EQ(told.status, 503);
    EXPECT_EQ(told.Get("retry-after"), "5");
    EXPECT_EQ(told.Get("connection"), "close");
    client->Send(whole.substr(whole.size() - 5));  // is read and thrown away
    EXPECT_TRUE(client->Ended());
  }
}

TEST_F(DrainTest, TheDeadlineIsToldToStreamsAndOthers) {
  backend_.set_held(true);
  TestClient stream(server_->address()), whole(server_->address());
  Send(&stream, kStream);
  Send(&whole, kWhole);
  ASSERT_TRUE(stream.ReadUntil("keep-alive"));
  EXPECT_FALSE(server_->Drain(absl::Milliseconds(50)));
  const Reply told = stream.Read();
  EXPECT_TRUE(told.complete);
  const std::vector<std::string> events = SseData(told.body);
  ASSERT_EQ(events.size(), 2u) << told.body;
  EXPECT_EQ((*ParseJson(events[0]))["error"]["code"], "service_unavailable");
  const Reply refused = whole.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(stream.Ended() && whole.Ended());
  EXPECT_EQ(backend_.aborts, 2);
}

TEST_F(DrainTest, StoppingWithoutDrainAborts) {
  backend_.set_held(true);
  TestClient stream(server_->address());
  Send(&stream, kStream);
  server_.reset();
  EXPECT_EQ(backend_.aborts, 1);
  backend_.set_held(false);
  while (stream.ReadMore()) {
  }
  EXPECT_EQ(stream.buffer().find("[DONE]"), std::string::npos);
}

TEST(ServerStart, SaysWhatIsWrongWithAnAddress) {
  FakeBackend backend;
  Options options;
  options.host = "not an address";
  EXPECT_EQ(Server::Start(options, {}, &backend).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.host = "127.0.0.1";
  options.port = 0;
  const auto first = Server::Start(options, {}, &backend);
  ASSERT_TRUE(first.ok());
  const std::string& address = (*first)->address();
  options.port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  EXPECT_EQ(Server::Start(options, {}, &backend).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cuvil::server::http
