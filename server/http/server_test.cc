// Answers over real sockets against a backend without a model.
#include "server/http/server.h"

#include <chrono>
#include <string>
#include <thread>

#include "base/json.h"
#include "gtest/gtest.h"
#include "server/api/retry.h"
#include "server/http/test_client.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::http {
namespace {

constexpr char kHello[] = R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":3)";

std::string Chat(std::string_view more = "") { return absl::StrCat(kHello, Sv(more), "}"); }

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    options_.port = 0;
    options_.version = "1.2.3";
  }
  void Start() {
    auto server = Server::Start(options_, hooks_, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Reply Ask(const std::string& request) { return TestClient(server_->address()).Ask(request); }
  Json AskJson(const std::string& request) {
    const Reply reply = Ask(request);
    auto json = ParseJson(reply.body);
    EXPECT_TRUE(json.ok()) << reply.head << reply.body;
    return json.ok() ? *json : Json::object();
  }

  FakeBackend backend_;
  Options options_;
  Hooks hooks_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, ChatWhole) {
  Start();
  const Reply reply = Ask(Post("/v1/chat/completions", Chat(), "x-request-id: my-id.1\r\n"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.Get("x-request-id"), "my-id.1");
  EXPECT_EQ(reply.Get("content-type"), "application/json");
  const Json json = *ParseJson(reply.body);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "org/tiny");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "abc");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(backend_.PromptText(), "user:hello<|im_end|>assistant:");
}

TEST_F(ServerTest, ChatStream) {
  Start();
  const Reply reply = Ask(Post("/v1/chat/completions",
                               Chat(R"(,"stream":true,"stream_options":{"include_usage":true})")));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.Get("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(reply.Get("x-accel-buffering"), "no");
  const std::vector<std::string> events = SseData(reply.body);
  ASSERT_EQ(events.size(), 7u) << reply.body;
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json json = *ParseJson(events[i]);
    EXPECT_EQ(json["object"], "chat.completion.chunk");
    if (i == 5) {
      EXPECT_TRUE(json["choices"].empty());
      EXPECT_EQ(json["usage"]["completion_tokens"], 3);
      continue;
    }
    EXPECT_TRUE(json["usage"].is_null());
    const Json& choice = json["choices"][0];
    if (i == 0) EXPECT_EQ(choice["delta"]["role"], "assistant");
    text += choice["delta"].value("content", "");
    EXPECT_EQ(choice["finish_reason"], i == 4 ? Json("length") : Json(nullptr));
  }
  EXPECT_EQ(text, "abc");
}

TEST_F(ServerTest, CompletionsOfSeveralPromptsCountTheirChoices) {
  Start();
  const Json json =
      AskJson(Post("/v1/completions", R"({"prompt":["x","y"],"n":2,"max_tokens":2,"echo":true})"));
  ASSERT_EQ(json["choices"].size(), 4u);
  const char* texts[] = {"xab", "xbc", "yab", "ybc"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);
}

TEST_F(ServerTest, MorePromptsThanTheQueueHolds) {
  Start();
  backend_.set_queue_max(3);
  std::string prompts = "\"p\"";
  for (int i = 0; i < 19; ++i) prompts += ",\"p\"";
  const Json json = AskJson(Post("/v1/embeddings", absl::StrCat(R"({"input":[)", prompts, "]}")));
  ASSERT_EQ(json["data"].size(), 20u);
  EXPECT_EQ(json["data"][19]["index"], 19);
  EXPECT_FLOAT_EQ(json["data"][19]["embedding"][0], 0.6F);
}

// Parsing what is refused anyway takes time from what is not.
TEST_F(ServerTest, WithoutRoomNothingIsParsed) {
  Start();
  backend_.set_room(WithRetryAfter(absl::ResourceExhaustedError("no room"), 2'500'000));
  const std::string chat = "/v1/chat/completions";
  for (const std::string& path :
       {chat, std::string("/v1/completions"), std::string("/v1/embeddings")}) {
    const Reply reply = Ask(Post(path, "no JSON"));
    EXPECT_EQ(reply.status, 429);
    EXPECT_EQ(reply.Get("retry-after"), "3");
  }
  backend_.set_room(absl::OkStatus());
  EXPECT_EQ(Ask(Post(chat, "no JSON")).status, 400);
}

TEST_F(ServerTest, PlainRoutes) {
  hooks_.metrics = [] { return std::string("up 1\n"); };
  Start();
  EXPECT_EQ(AskJson(Get("/v1/models"))["data"][0]["id"], "org/tiny");
  EXPECT_EQ(AskJson(Get("/v1/models/org/tiny"))["id"], "org/tiny");
  EXPECT_EQ(AskJson(Get("/v1/models/org%2Ftiny"))["id"], "org/tiny");
  EXPECT_EQ(AskJson(Get("/v1/models/nope"))["error"]["code"], "model_not_found");
  EXPECT_EQ(AskJson(Get("/version"))["version"], "1.2.3");
  EXPECT_EQ(AskJson(Get("/health?x=1"))["status"], "ok");
  EXPECT_EQ(AskJson(Get("/openapi.json"))["openapi"], "3.1.0");
  EXPECT_EQ(Ask(Get("/metrics")).body, "up 1\n");
  EXPECT_EQ(AskJson(Get("/admin/models"))["models"][0]["state"], "ready");
  EXPECT_EQ(Ask("POST /admin/models/org/tiny/sleep HTTP/1.1\r\nHost: localhost\r\n\r\n").status,
            202);
  EXPECT_EQ(backend_.actions, std::vector<std::string>{"sleep org/tiny"});
  EXPECT_EQ(Ask("POST /admin/models/x/wake HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 404);
  const Json tokens = AskJson(Post("/tokenize", R"({"prompt":"hello","return_token_strs":true})"));
  EXPECT_EQ(tokens["token_strs"], Json::array({"hell", "o"}));
  EXPECT_EQ(AskJson(Post("/detokenize",
                         absl::StrCat(R"({"tokens":)", tokens["tokens"].dump(), "}")))["prompt"],
            "hello");
}

TEST_F(ServerTest, ProbesTellStates) {
  Start();
  backend_.is_ready = false;
  EXPECT_EQ(Ask(Get("/readyz")).status, 503);
  EXPECT_EQ(Ask(Get("/livez")).status, 200);
  backend_.is_alive = false;
  EXPECT_EQ(Ask(Get("/livez")).status, 503);
  backend_.is_started = false;
  EXPECT_EQ(Ask(Get("/startupz")).status, 503);
}

TEST_F(ServerTest, ErrorsHaveFourKeysAndTellNothing) {
  Start();
  backend_.set_submit_status(absl::InternalError("0x7f3a cuda at /usr/lib/libcuda.so"));
  Reply reply = Ask(Post("/v1/chat/completions", Chat()));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.Get("x-should-retry"), "false");
  EXPECT_EQ(reply.body.find("cuda"), std::string::npos) << reply.body;
  for (const char* key : {"message", "type", "param", "code"}) {
    EXPECT_TRUE((*ParseJson(reply.body))["error"].contains(key));
  }
  backend_.set_submit_status(absl::ResourceExhaustedError("the queue is full"));
  reply = Ask(Post("/v1/chat/completions", Chat(R"(,"stream":true)")));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.Get("retry-after"), "1");
  reply = Ask(Post("/v1/chat/completions", Chat(R"(,"model":"sleeping")")));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body.find("srv"), std::string::npos) << reply.body;
}

TEST_F(ServerTest, FailureBeforeTheFirstEventIsAStatusLaterAnEvent) {
  Start();
  backend_.set_script([](const GenerateRequest& request) {
    std::vector<Events> steps(1);
    steps[0].done = true;
    steps[0].status = absl::DeadlineExceededError("waited too long");
    if (request.sampling.seed == 1) {
      Events first;
      first.tokens.push_back({.token = {.id = ByteToken('a')}, .text = "a"});
      steps.insert(steps.begin(), first);
    }
    return steps;
  });
  EXPECT_EQ(Ask(Post("/v1/chat/completions", Chat(R"(,"stream":true,"seed":2)"))).status, 504);
  const Reply reply = Ask(Post("/v1/chat/completions", Chat(R"(,"stream":true,"seed":1)")));
  EXPECT_EQ(reply.status, 200);
  const std::vector<std::string> events = SseData(reply.body);
  ASSERT_EQ(events.size(), 4u) << reply.body;
  EXPECT_EQ((*ParseJson(events[2]))["error"]["code"], "deadline_exceeded");
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(ServerTest, KeepAliveAndHttp10) {
  Start();
  TestClient client(server_->address());
  EXPECT_EQ(client.Ask(Get("/health")).status, 200);
  EXPECT_EQ(client.Ask(Post("/v1/chat/completions", Chat(R"(,"stream":true)"))).status, 200);
  EXPECT_EQ(client.Ask(Post("/v1/chat/completions", Chat())).status, 200);
  EXPECT_EQ(client.Ask(Get("/nope")).status, 404);
  client.Send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Reply head = client.Read(/*without_body=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.Get("content-length"), "0");
  EXPECT_EQ(client.Ask(Get("/health", "Connection: close\r\n")).status, 200);
  EXPECT_TRUE(client.Ended());

  TestClient old(server_->address());
  const std::string body = Chat(R"(,"stream":true)");
  const Reply reply = old.Ask(
      absl::StrCat("POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n",
                   "Content-Length: ", body.size(), "\r\n\r\n", body));
  EXPECT_EQ(reply.Get("transfer-encoding"), "");
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(SseData(reply.body).back(), "[DONE]");
}

TEST_F(ServerTest, AuthorisationIsAskedForEveryRouteButProbes) {
  hooks_.metrics = [] { return std::string(); };
  hooks_.authorizer = [](const Credentials& who) -> absl::StatusOr<std::string> {
    if (who.bearer == "admin") return std::string("root");
    if (who.bearer != "key") return absl::UnauthenticatedError("give a valid API key");
    if (who.access == Access::kAdmin) return absl::PermissionDeniedError("not with this key");
    return std::string("tenant-1");
  };
  Start();
  for (const char* path : {"/livez", "/readyz", "/startupz", "/health"}) {
    EXPECT_EQ(Ask(Get(path)).status, 200) << path;
  }
  for (const char* path :
       {"/v1/models", "/v1/models/org/tiny", "/openapi.json", "/version", "/metrics",
        "/admin/models", "/nope", "//v1/models", "/V1/models", "/v1/models/", "/v1/./models",
        "/v1/../v1/models", "/%2fv1/models", "/%76%31/models", "/livez/../v1/models", "/livez/",
        "/livez%2f..%2fv1%2fmodels", "/v1/chat/completions"}) {
    const Reply reply = Ask(Get(path));
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_EQ((*ParseJson(reply.body))["error"]["code"], "invalid_api_key");
    EXPECT_EQ(reply.Get("www-authenticate"), "Bearer");
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize",
                           "/detokenize", "/admin/models/a/load", "/admin/x"}) {
    EXPECT_EQ(Ask(Post(path, "{}")).status, 401) << path;
  }
  EXPECT_EQ(Ask(Get("/v1/models", "Authorization: Bearer key\r\n")).status, 200);
  EXPECT_EQ(Ask(Get("/v1/models", "authorization: bearer key\r\n")).status, 200);
  EXPECT_EQ(Ask(Get("/v1/models", "Authorization: Basic key\r\n")).status, 401);
  EXPECT_EQ(
      Ask(Get("/v1/models", "Authorization: Bearer key\r\nAuthorization: Bearer key\r\n")).status,
      401);
  EXPECT_EQ(Ask(Get("/admin/models", "Authorization: Bearer key\r\n")).status, 403);
  EXPECT_EQ(Ask(Get("/admin/models", "Authorization: Bearer admin\r\n")).status, 200);
  EXPECT_EQ(Ask(Post("/v1/chat/completions", Chat(), "Authorization: Bearer key\r\n")).status, 200);
  EXPECT_EQ(backend_.last_request().tenant, "tenant-1");
}

// OpenAI's client for JavaScript sends a dozen fields of its own, which a browser asks about first.
TEST_F(ServerTest, PagesOfAListedOriginMaySendTheFieldsTheyAskFor) {
  options_.cors_origins = {"https://app.example"};
  Start();
  const auto allowed = [&](const std::string& asked, const char* origin = "https://app.example") {
    return Ask(absl::StrCat("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
                            "Access-Control-Request-Method: POST\r\nOrigin: ", origin, "\r\n",
                            asked.empty() ? "" : "Access-Control-Request-Headers: ", asked,
                            asked.empty() ? "\r\n" : "\r\n\r\n"))
        .Get("access-control-allow-headers");
  };
  const std::string names = "authorization,content-type, x-stainless-lang,x-stainless-retry-count";
  EXPECT_EQ(allowed(names), names);
  EXPECT_EQ(allowed(names, "https://other.example"), "");
  const std::string usual = "Authorization, Content-Type, x-request-id, x-request-timeout";
  EXPECT_EQ(allowed(""), usual);
  for (const std::string& bad : {std::string("a b"), std::string("a,,b"), std::string("a:b"),
                                 std::string("\"a\""), "a" + std::string(3000, 'x')}) {
    EXPECT_EQ(allowed(bad), usual) << bad;
  }
  const Reply reply = Ask(Post("/v1/chat/completions", Chat(), "Origin: https://app.example\r\n"));
  EXPECT_NE(reply.Get("access-control-expose-headers").find("x-should-retry"), std::string::npos);
}

}  // namespace
}  // namespace cuvil::server::http
