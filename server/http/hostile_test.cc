// What a client must not get away with: requests that two servers read differently, floods, leaving
// at every moment, reading slowly. After each the server answers a well-formed request.
#include <chrono>
#include <string>
#include <thread>

#include "base/json.h"
#include "gtest/gtest.h"
#include "server/http/server.h"
#include "server/http/test_client.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::http {
namespace {

using std::chrono::milliseconds;

std::string Chat(std::string_view more = "") {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"hi"}])", Sv(more), "}");
}

// True once `done` is, within a few seconds.
template <typename Done>
bool Eventually(Done done) {
  for (int i = 0; i < 3000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

class CountingObserver : public Observer {
 public:
  void OnConnections(int64_t open) override { connections = open; }
  void OnStarted(const RequestStart&) override { ++started; }
  void OnEnded(const RequestRecord& record) override {
    ++ended;
    std::lock_guard lock(mutex_);
    last_ = record;
  }
  void OnRejected(RejectReason, std::string_view) override { ++rejected; }
  RequestRecord last() {
    std::lock_guard lock(mutex_);
    return last_;
  }

  std::atomic<int64_t> connections = 0;
  std::atomic<int> started = 0, ended = 0, rejected = 0;

 private:
  std::mutex mutex_;
  RequestRecord last_;
};

class HostileTest : public testing::Test {
 protected:
  HostileTest() {
    options_.port = 0;
    hooks_.observer = &observer_;
  }
  void Start() {
    auto server = Server::Start(options_, hooks_, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    EXPECT_EQ(TestClient(server_->address()).Ask(Get("/health")).status, 200);
    EXPECT_TRUE(Eventually([this] { return observer_.connections == 0; }));
    EXPECT_EQ(observer_.started, observer_.ended);
    EXPECT_TRUE(Eventually([this] { return backend_.running() == 0; }));
  }
  Reply Ask(const std::string& request) { return TestClient(server_->address()).Ask(request); }

  // Sends `request` followed by a complete one that would show in the backend if it were run.
  void ExpectRefusedAndClosed(const std::string& request, int status) {
    SCOPED_TRACE(request.substr(0, 200));
    const int before = backend_.submissions;
    TestClient client(server_->address());
    client.Send(absl::StrCat(request, Post("/v1/chat/completions", Chat())));
    const Reply reply = client.Read();
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.Get("connection"), "close");
    EXPECT_TRUE(client.Ended());
    EXPECT_EQ(backend_.submissions, before);
  }

  FakeBackend backend_;
  CountingObserver observer_;
  Options options_;
  Hooks hooks_;
  std::unique_ptr<Server> server_;
};

TEST_F(HostileTest, AmbiguousMessagesAreRefusedAndNothingAfterThemRuns) {
  Start();
  const std::string start =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::string chunk = "2\r\n{}\r\n0\r\n\r\n";
  const struct {
    std::string request;
    int status;
  } cases[] = {
      {start + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, 400},
      {start + "Transfer-Encoding: chunked, gzip\r\n\r\n" + chunk, 501},
      {start + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk, 501},
      {start + "Transfer-Encoding: identity\r\n\r\n", 501},
      {start + "Transfer-Encoding: xchunked\r\n\r\n" + chunk, 501},
      {start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, 400},
      {start + "Transfer-Encoding:\r\n\r\n" + chunk, 501},
      {start + "Transfer-Encoding : chunked\r\n\r\n" + chunk, 400},
      {start + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400},
      {start + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
      {start + "Content-Length: 2, 2\r\n\r\n{}", 400},
      {start + "Content-Length: +2\r\n\r\n{}", 400},
      {start + "Content-Length: -1\r\n\r\n{}", 400},
      {start + "Content-Length: 0x2\r\n\r\n{}", 400},
      {start + "Content-Length: 2 \r\n X: folded\r\n\r\n{}", 400},
      {start + "X: a\r\n folded\r\nContent-Length: 2\r\n\r\n{}", 400},
      {start + "X: a\r\n\tfolded\r\nContent-Length: 2\r\n\r\n{}", 400},
      {start + "X: a\rContent-Length: 2\r\n\r\n{}", 400},
      {start + "X: a\nContent-Length: 2\r\n\r\n{}", 400},
      {start + std::string("X: a\0b\r\nContent-Length: 2\r\n\r\n{}", 32), 400},
      {start + "Host: other\r\nContent-Length: 2\r\n\r\n{}", 400},
      {"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400},
      {"POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, 400},
      {"POST http://localhost/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET /health\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
      {"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n\r\n", 417},
      {start + "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", 400},
      {start + "Transfer-Encoding: chunked\r\n\r\n 2\r\n{}\r\n0\r\n\r\n", 400},
      {start + "Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n", 400},
      {start + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n", 400},
      {start + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 413},
      {start + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\n\r\n", 400},
  };
  for (const auto& one : cases) ExpectRefusedAndClosed(one.request, one.status);
}

TEST_F(HostileTest, FloodsMeetTheirLimits) {
  options_.body_bytes_max = 1 << 20;
  Start();
  const std::string big(40000, 'a');
  EXPECT_EQ(Ask(Get("/health", "Cookie: " + big + "\r\n")).status, 431);
  EXPECT_EQ(Ask(Get("/" + std::string(9000, 'a'))).status, 414);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "a: b\r\n";
  EXPECT_EQ(Ask(Get("/health", many)).status, 431);
  // A head that never ends is cut at the limit, whatever its line ends are.
  TestClient endless(server_->address());
  endless.Send("GET /health HTTP/1.1\r\nX: ");
  for (int i = 0; i < 4000 && endless.Send(big); ++i) {
  }
  EXPECT_TRUE(Eventually([&] { return !endless.ReadMore(10); }));

  const std::string chunked =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  std::string tiny;
  for (int i = 0; i < 1000000; ++i) tiny += "1\r\nx\r\n";
  EXPECT_EQ(Ask(chunked + tiny).status, 413);
  EXPECT_EQ(Ask(chunked + "1;" + std::string(4 << 20, 'e')).status, 413);
  EXPECT_EQ(Ask(chunked + "0\r\nT: " + std::string(70000, 't') + "\r\n\r\n").status, 413);
  std::string trailers;
  for (int i = 0; i < 100000; ++i) trailers += "a: b\r\n";
  EXPECT_EQ(Ask(chunked + "0\r\n" + trailers + "\r\n").status, 413);
  // At the limit, one over, and a length that lies.
  const std::string text(options_.body_bytes_max - 14, 'y');
  EXPECT_EQ(Ask(Post("/tokenize", absl::StrCat(R"({ "prompt":")", text, "\"}"))).status, 200);
  EXPECT_EQ(Ask(Post("/tokenize", absl::StrCat(R"({ "prompt":")", text, "y\"}"))).status, 413);
  EXPECT_EQ(Ask("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                "application/json\r\nContent-Length: 99999999999999999999\r\n\r\n")
                .status,
            400);
}

TEST_F(HostileTest, AllBodiesTogetherHaveALimit) {
  options_.body_bytes_max = options_.all_bodies_bytes_max = 3000;
  Start();
  const std::string request =
      Post("/tokenize", absl::StrCat("{\"x\":\"", std::string(2000, 'x'), "\",\"prompt\":\"a\"}"));
  TestClient holder(server_->address());
  holder.Send(request.substr(0, request.size() - 1));
  std::this_thread::sleep_for(milliseconds(50));
  const Reply refused = Ask(request);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Get("retry-after"), "1");
  EXPECT_EQ(holder.Ask(request.substr(request.size() - 1)).status, 200);
  EXPECT_EQ(Ask(request).status, 200);
}

TEST_F(HostileTest, OneByteAtATimeWorks) {
  Start();
  const std::string body = R"({"prompt":"hello"})";
  std::string request =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const char c : body) request += absl::StrCat("1;x=y\r\n", std::string(1, c), "\r\n");
  request += "0\r\nTrailer: ignored\r\n\r\n";
  TestClient client(server_->address());
  for (const char c : request) {
    ASSERT_TRUE(client.Send(std::string(1, c)));
    if (c == '\n') std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Ask(Get("/health")).status, 200);
}

TEST_F(HostileTest, ContentRules) {
  Start();
  const auto post = [this](std::string_view fields) {
    return Ask(absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n", Sv(fields),
                            "Content-Length: 14\r\n\r\n{\"prompt\":\"a\"}"))
        .status;
  };
  EXPECT_EQ(post("Content-Type: application/json; charset=utf-8\r\n"), 200);
  EXPECT_EQ(post("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(post(""), 415);
  EXPECT_EQ(post("Content-Type: application/jsonx\r\n"), 415);
  EXPECT_EQ(post("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(post("Content-Type: application/json\r\nOrigin: http://evil.example\r\n"), 403);
  EXPECT_EQ(post("Content-Type: application/json\r\nOrigin: null\r\n"), 403);
  EXPECT_EQ(post("Content-Type: application/json\r\nOrigin: http://localhost\r\n"), 200);
  const Reply wrong = Ask(Get("/v1/chat/completions"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.Get("allow"), "POST, OPTIONS");
  EXPECT_EQ(Ask("DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").Get("allow"),
            "GET, HEAD, OPTIONS");
  EXPECT_EQ(Ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 204);
  EXPECT_EQ(Ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").Get("allow"),
            "GET, HEAD, OPTIONS");
  const std::string host = "GET /v1/models HTTP/1.1\r\nHost: ";
  for (const char* good : {"127.0.0.1:8000", "LOCALHOST", "[::1]:1", "a.localhost", "127.1.2.3"}) {
    EXPECT_EQ(Ask(host + good + "\r\n\r\n").status, 200) << good;
  }
  for (const char* bad : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ":",
                          "localhost:x", "localhost::", "a b", "", "[::1", "127.0.0"}) {
    EXPECT_EQ(Ask(host + bad + "\r\n\r\n").status, 403) << bad;
  }
}

TEST_F(HostileTest, AHostMayEndWithAnEmptyPort) {
  Start();
  for (const char* host : {"localhost:", "127.0.0.1:", "[::1]:", "A.LocalHost:"}) {
    for (const char* path : {"/v1/models", "/livez", "/version"}) {
      EXPECT_EQ(Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n")).status,
                200)
          << host << path;
    }
  }
  EXPECT_EQ(Ask("GET /v1/models HTTP/1.1\r\nHost: evil.example:\r\n\r\n").status, 403);
  EXPECT_EQ(Ask("POST /tokenize HTTP/1.1\r\nHost: localhost:\r\nOrigin: http://localhost\r\n"
                "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}")
                .status,
            200);
}

TEST_F(HostileTest, OnlyUtf8BodiesAreRead) {
  Start();
  const auto post = [this](std::string_view type) {
    return Ask(absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: ",
                            Sv(type), "\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}"))
        .status;
  };
  for (const char* good : {"application/json", "application/json;charset=UTF-8",
                           "application/json ; Charset=\"utf-8\"", "application/json; charset=utf8",
                           "application/json; profile=x; charset=utf-8", "application/json;"}) {
    EXPECT_EQ(post(good), 200) << good;
  }
  for (const char* bad :
       {"application/json; charset=utf-16", "application/json; charset=utf-16le",
        "application/json; charset=\"utf-16\"", "application/json; charset=iso-8859-1",
        "application/json; CHARSET=latin1", "application/json; charset=",
        "application/json; charset", "application/json; charset=utf-8; charset=utf-16"}) {
    EXPECT_EQ(post(bad), 415) << bad;
  }
}

TEST_F(HostileTest, CorsIsOffUnlessAsked) {
  options_.cors_origins = {"https://app.example"};
  Start();
  const std::string preflight =
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Access-Control-Request-Method: POST\r\nOrigin: ";
  Reply reply = Ask(preflight + "https://app.example\r\n\r\n");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.Get("access-control-allow-origin"), "https://app.example");
  reply = Ask(preflight + "https://other.example\r\n\r\n");
  EXPECT_EQ(reply.status, 403);
  EXPECT_EQ(reply.Get("access-control-allow-origin"), "");
  reply = Ask(Post("/tokenize", R"({"prompt":"a"})", "Origin: https://app.example\r\n"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Get("access-control-allow-origin"), "https://app.example");
}

TEST_F(HostileTest, ExpectContinueIsAnsweredBeforeTheBody) {
  Start();
  const std::string body = R"({"prompt":"a"})";
  const std::string head = absl::StrCat(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: ");
  TestClient client(server_->address());
  client.Send(absl::StrCat(head, body.size(), "\r\n\r\n"));
  EXPECT_EQ(client.Read(false, /*informational=*/true).status, 100);
  EXPECT_EQ(client.Ask(body).status, 200);
  EXPECT_EQ(Ask(absl::StrCat(head, 1 << 30, "\r\n\r\n")).status, 413);
}

TEST_F(HostileTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  std::string all;
  for (int i = 0; i < 300; ++i) {
    all += Post("/detokenize", absl::StrCat(R"({"tokens":[)", 3 + 'a' + i % 26, "]}"));
  }
  TestClient client(server_->address());
  std::thread sender([&] { client.Send(all); });
  for (int i = 0; i < 300; ++i) {
    const Reply reply = client.Read();
    ASSERT_EQ(reply.body, absl::StrCat("{\"prompt\":\"", std::string(1, 'a' + i % 26), "\"}"));
  }
  sender.join();
}

TEST_F(HostileTest, LeavingInEveryStateAbortsAndIsCounted) {
  Start();
  const std::string whole = Post("/v1/chat/completions", Chat(R"(,"max_tokens":200)"));
  const std::string stream =
      Post("/v1/chat/completions", Chat(R"(,"stream":true,"max_tokens":200)"));
  for (const bool reset : {false, true}) {
    const auto leave = [reset](TestClient* client) { reset ? client->Reset() : client->Close(); };
    for (const size_t part : {size_t{0}, size_t{10}, whole.size() - 20}) {
      TestClient client(server_->address());
      client.Send(whole.substr(0, part));
      std::this_thread::sleep_for(milliseconds(5));
      leave(&client);
    }
    backend_.set_held(true);
    for (const std::string& request : {whole, stream}) {  // queued
      const int aborts = backend_.aborts;
      TestClient client(server_->address());
      client.Send(request);
      ASSERT_TRUE(Eventually([&] { return backend_.running() == 1; }));
      leave(&client);
      EXPECT_TRUE(Eventually([&] { return backend_.aborts == aborts + 1; }));
      EXPECT_TRUE(Eventually([&] { return backend_.running() == 0; }));
      EXPECT_TRUE(Eventually([&] { return observer_.started == observer_.ended; }));
      EXPECT_EQ(observer_.last().status, 499);
      EXPECT_EQ(observer_.last().finish_reason, "abort");
    }
    backend_.set_held(false);
    {  // decoding
      TestClient client(server_->address());
      client.Send(stream);
      ASSERT_TRUE(client.ReadUntil("\"content\":\"b\""));
      leave(&client);
      EXPECT_TRUE(Eventually([&] { return backend_.running() == 0; }));
    }
    {  // after the end
      TestClient client(server_->address());
      EXPECT_EQ(client.Ask(whole).status, 200);
      leave(&client);
    }
    {  // at once, without waiting for anything
      TestClient client(server_->address());
      client.Send(stream);
      leave(&client);
    }
  }
}

TEST_F(HostileTest, SlowReaderIsCutOff) {
  options_.backlog_bytes_max = 256 << 10;
  Start();
  backend_.set_step(std::chrono::microseconds(100));
  backend_.set_script([](const GenerateRequest& request) {
    std::vector<Events> steps(20000);
    for (Events& step : steps) {
      step.tokens.push_back({.token = {.id = ByteToken('a')}, .text = std::string(4096, 'a')});
    }
    FakeBackend::Finish(request, 1, &steps.back());
    return steps;
  });
  TestClient slow(server_->address(), /*receive_buffer=*/4096);
  slow.Send(Post("/v1/chat/completions", Chat(R"(,"stream":true)")));
  EXPECT_TRUE(Eventually([&] { return backend_.aborts == 1; }));
  EXPECT_TRUE(Eventually([&] { return observer_.ended == 1; }));
  EXPECT_EQ(observer_.last().error, "the client reads too slowly");
}

TEST_F(HostileTest, MorePipelinedThanIsKeptWhileAModelWorks) {
  Start();
  backend_.set_held(true);
  TestClient client(server_->address());
  const std::string next =
      Post("/tokenize", R"({"prompt":"hello"})", "X: " + std::string(900, 'x') + "\r\n");
  std::string all = Post("/v1/chat/completions", Chat());
  for (int i = 0; i < 200; ++i) all += next;
  std::thread sender([&] { client.Send(all); });
  ASSERT_TRUE(Eventually([&] { return backend_.running() == 1; }));
  std::this_thread::sleep_for(milliseconds(30));
  backend_.set_held(false);
  for (int i = 0; i < 201; ++i) ASSERT_EQ(client.Read().status, 200) << i;
  sender.join();
}

TEST_F(HostileTest, SlowSendersAreTimedOut) {
  options_.head_timeout = absl::Milliseconds(60);
  options_.body_idle_timeout = absl::Milliseconds(60);
  options_.keep_alive_timeout = absl::Milliseconds(60);
  Start();
  TestClient silent(server_->address());
  EXPECT_TRUE(silent.Ended());
  TestClient head(server_->address());
  head.Send("GET /health HT");
  EXPECT_EQ(head.Read().status, 408);
  EXPECT_TRUE(head.Ended());
  TestClient body(server_->address());
  body.Send(Post("/tokenize", std::string(100, ' ')).substr(0, 150));
  EXPECT_EQ(body.Read().status, 408);
  EXPECT_TRUE(body.Ended());
  TestClient idle(server_->address());
  EXPECT_EQ(idle.Ask(Get("/health")).status, 200);
  EXPECT_TRUE(idle.Ended());
}

TEST_F(HostileTest, QuietStreamsAreKeptAlive) {
  options_.ping_interval = absl::Milliseconds(20);
  Start();
  backend_.set_held(true);
  TestClient client(server_->address());
  client.Send(Post("/v1/chat/completions", Chat(R"(,"stream":true,"max_tokens":2)")));
  ASSERT_TRUE(client.ReadUntil(": keep-alive\n\n"));
  backend_.set_held(false);
  const Reply reply = client.Read();
  EXPECT_TRUE(reply.body.starts_with(": keep-alive\n\n")) << reply.body;
  EXPECT_EQ(SseData(reply.body).back(), "[DONE]");
}

TEST_F(HostileTest, ProbesAnswerUnderLoadAndOverTheConnectionLimit) {
  options_.connections_max = 20;
  Start();
  backend_.set_held(true);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->address()));
    clients.back()->Send(Post("/v1/chat/completions", Chat()));
  }
  ASSERT_TRUE(Eventually([&] { return backend_.running() == 20; }));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask(Get("/livez")).status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
  const Reply over = Ask(Get("/v1/models"));
  EXPECT_EQ(over.status, 503);
  EXPECT_EQ(over.Get("retry-after"), "5");
  EXPECT_EQ(over.Get("connection"), "close");
  backend_.set_held(false);
  for (const auto& client : clients) EXPECT_EQ(client->Read().status, 200);
}

TEST_F(HostileTest, ManyStreamsAtOnceGetTheirOwnText) {
  Start();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      TestClient client(server_->address());
      for (int i = 0; i < 10; ++i) {
        const int64_t length = 1 + (t * 10 + i) % 26;
        const Reply reply = client.Ask(
            Post("/v1/completions",
                 absl::StrCat(R"({"prompt":"p","stream":true,"max_tokens":)", length, "}")));
        std::string text;
        for (const std::string& data : SseData(reply.body)) {
          if (data == "[DONE]") continue;
          text += (*ParseJson(data))["choices"][0]["text"].get<std::string>();
        }
        good += text == std::string("abcdefghijklmnopqrstuvwxyz").substr(0, length) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 80);
}

}  // namespace
}  // namespace cuvil::server::http
