// How calls end: by their client, by name, by time, by a limit, by a drain. The model's work ends
// with them, and nothing is cut without a word.
#include <thread>

#include "gmock/gmock.h"
#include "server/grpc/server.h"
#include "server/grpc/test_door.h"

namespace cuvil::server::grpc {
namespace {

using ::grpc::StatusCode;
using testing::HasSubstr;
using Serving = ::grpc::health::v1::HealthCheckResponse;

class EndTest : public DoorTest {
 protected:
  // Answers that would take minutes.
  void WriteForever() {
    backend_.set_script([](const GenerateRequest& request) {
      GenerateRequest longer = request;
      longer.max_tokens = 100000;
      return FakeBackend::Letters(longer);
    });
  }
  // A step writes this many bytes of text.
  void WriteMuch(size_t bytes) {
    backend_.set_script([bytes](const GenerateRequest& request) {
      std::vector<Events> steps(10000);
      for (Events& step : steps) {
        step.tokens.push_back({.choice = 0, .token = {}, .text = std::string(bytes, 'x')});
      }
      FakeBackend::Finish(request, 10000, &steps.back());
      return steps;
    });
  }
  bool Quiet() {
    return Until(
        [this] { return backend_.running() == 0 && observer_.started == observer_.ended; });
  }
};

TEST_F(EndTest, CancelWhileItWaits) {
  Start();
  backend_.set_held(true);
  Context context;
  const auto reader = stub_->Generate(&context, Hello());
  ASSERT_TRUE(Until([&] { return backend_.running() == 1; }));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(backend_.aborts, 1);
  EXPECT_EQ(observer_.last().status, StatusCode::CANCELLED);
  EXPECT_EQ(observer_.last().finish_reason, "abort");
}

TEST_F(EndTest, CancelWhileItStreams) {
  Start();
  WriteForever();
  Context context;
  const auto reader = stub_->Generate(&context, Hello());
  v1::GenerateResponse message;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(backend_.aborts, 1);
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(EndTest, CancelOfManyAtAnyMoment) {
  Start();
  WriteForever();
  backend_.set_step(std::chrono::microseconds(50));
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([this, c] {
      for (int i = 0; i < 25; ++i) {
        Context context;
        const auto reader = stub_->Generate(&context, Hello());
        std::this_thread::sleep_for(std::chrono::microseconds(i * 37 * (c + 1)));
        context.TryCancel();
        v1::GenerateResponse message;
        while (reader->Read(&message)) {
        }
        EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Quiet());
}

TEST_F(EndTest, CancelOfAnEmbedding) {
  Start();
  backend_.set_held(true);
  Context context;
  std::thread cancel([&] {
    Until([&] { return backend_.running() == 1; });
    context.TryCancel();
  });
  v1::EmbedRequest request;
  request.set_text("hello");
  v1::EmbedResponse response;
  EXPECT_EQ(stub_->Embed(&context, request, &response).error_code(), StatusCode::CANCELLED);
  cancel.join();
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(backend_.aborts, 1);
}

TEST_F(EndTest, AClientThatDisconnects) {
  Start();
  WriteForever();
  auto channel = Connect();
  Context context;
  auto reader = v1::Cuvil::NewStub(channel)->Generate(&context, Hello());
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  reader.reset();
  channel.reset();
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(backend_.aborts, 1);
}

TEST_F(EndTest, TheClientsDeadline) {
  Start();
  backend_.set_held(true);
  Context context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(150));
  EXPECT_EQ(Ask(Hello(), &context).status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Quiet());
  const int64_t deadline = backend_.last_request().deadline_ms;
  EXPECT_GT(deadline, 0);
  // The client rounds what is left up to whole milliseconds, and so does the server.
  EXPECT_LE(deadline, 152);
  EXPECT_EQ(backend_.aborts, 1);
}

TEST_F(EndTest, AbortEndsOnesOwnRequestsByName) {
  hooks_.authorizer = [](const http::Credentials& c) -> absl::StatusOr<std::string> {
    return std::string(c.bearer);  // each key a tenant
  };
  Start();
  WriteForever();
  v1::GenerateRequest request = Hello();
  request.set_request_id("mine");
  Context context;
  context.AddMetadata("authorization", "Bearer a");
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  const auto abort = [this](const char* key, const char* id) {
    Context own;
    own.AddMetadata("authorization", key);
    v1::AbortRequest named;
    named.set_request_id(id);
    v1::AbortResponse response;
    EXPECT_TRUE(stub_->Abort(&own, named, &response).ok());
    return response.found();
  };
  EXPECT_FALSE(abort("Bearer b", "mine"));
  EXPECT_FALSE(abort("Bearer a", "yours"));
  EXPECT_EQ(backend_.aborts, 0);
  EXPECT_TRUE(abort("Bearer a", "mine"));
  while (reader->Read(&message)) {
  }
  const Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(status.error_message(), "the request was cancelled");
  EXPECT_TRUE(Quiet());
  EXPECT_FALSE(abort("Bearer a", "mine"));
  Context bad;
  bad.AddMetadata("authorization", "Bearer a");
  v1::AbortResponse response;
  EXPECT_EQ(stub_->Abort(&bad, {}, &response).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(EndTest, AReaderTooFarBehindIsToldSo) {
  options_.backlog_bytes_max = size_t{1} << 20;
  Start();
  WriteMuch(size_t{64} << 10);
  Context context;
  const auto reader = stub_->Generate(&context, Hello());
  ASSERT_TRUE(Until([&] { return backend_.aborts == 1; }));
  v1::GenerateResponse message;
  int read = 0;
  while (reader->Read(&message)) ++read;
  const Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("too slowly"));
  EXPECT_LT(read, 1000);
  EXPECT_TRUE(Quiet());
}

TEST_F(EndTest, AReaderThatNeverReadsIsCutOff) {
  options_.write_timeout = absl::Milliseconds(200);
  options_.backlog_bytes_max = size_t{1} << 20;
  Start();
  WriteMuch(size_t{64} << 10);
  Context context;
  const auto reader = stub_->Generate(&context, Hello());
  EXPECT_TRUE(Until([&] { return observer_.started == 1; }));
  EXPECT_TRUE(Quiet());  // though nothing was read
  EXPECT_EQ(backend_.aborts, 1);
  context.TryCancel();
}

TEST_F(EndTest, RequestsOverTheLimits) {
  options_.message_bytes_max = 300;
  options_.all_messages_bytes_max = 100;  // less than one: a lone request fits all the same
  Start();
  v1::TokenizeRequest request;
  v1::TokenizeResponse response;
  request.set_text(std::string(301, 'x'));
  Context one;
  EXPECT_EQ(stub_->Tokenize(&one, request, &response).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  // Short enough that the next one fits beside it: a call is counted until after its client has the
  // answer.
  request.set_text(std::string(110, 'x'));
  Context alone;
  EXPECT_TRUE(stub_->Tokenize(&alone, request, &response).ok());
  request.set_text(std::string(200, 'x'));
  backend_.set_held(true);
  v1::GenerateRequest held = Hello();
  held.mutable_chat()->mutable_messages(0)->set_content(std::string(150, 'x'));
  std::thread first([&] { EXPECT_TRUE(Ask(held).status.ok()); });
  ASSERT_TRUE(Until([&] { return backend_.running() == 1; }));
  Context two;
  const Status many = stub_->Tokenize(&two, request, &response);
  EXPECT_EQ(many.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(many.error_message(), HasSubstr("more than 300 bytes of requests"));
  backend_.set_held(false);
  first.join();
  request.set_text("x");
  Context three;
  EXPECT_TRUE(stub_->Tokenize(&three, request, &response).ok());
}

TEST_F(EndTest, TooManyCalls) {
  options_.calls_max = 1;
  Start();
  backend_.set_held(true);
  std::thread first([&] { EXPECT_TRUE(Ask(Hello()).status.ok()); });
  ASSERT_TRUE(Until([&] { return backend_.running() == 1; }));
  const Answer second = Ask(Hello());
  EXPECT_EQ(second.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(second.status.error_message(), HasSubstr("has its 1 calls"));
  backend_.set_held(false);
  first.join();
}

TEST_F(EndTest, DrainLetsRunningCallsFinishAndRefusesNewOnes) {
  Start();
  backend_.set_held(true);
  Context watch_context;
  const auto watch = health_->Watch(&watch_context, {});
  Serving response;
  ASSERT_TRUE(watch->Read(&response));
  Answer running;
  std::thread client([&] { running = Ask(Hello()); });
  ASSERT_TRUE(Until([&] { return backend_.running() == 1; }));
  bool by_itself = false;
  std::thread drain([&] { by_itself = server_->Drain(absl::Seconds(30)); });
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), Serving::NOT_SERVING);
  EXPECT_EQ(Health(""), Serving::NOT_SERVING);
  EXPECT_EQ(Health("org/tiny"), Serving::NOT_SERVING);
  const Answer late = Ask(Hello());
  EXPECT_EQ(late.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(late.status.error_message(), HasSubstr("shutting down"));
  EXPECT_EQ(observer_.rejected().back(), http::RejectReason::kDraining);
  backend_.set_held(false);
  client.join();
  drain.join();
  EXPECT_TRUE(by_itself);
  EXPECT_TRUE(running.status.ok()) << running.status.error_message();
  EXPECT_EQ(running.text, "abc");
  EXPECT_EQ(backend_.aborts, 0);
}

TEST_F(EndTest, WhatIsLeftAtTheDrainsDeadlineIsTold) {
  Start();
  WriteForever();
  Answer running;
  std::thread client([&] { running = Ask(Hello()); });
  ASSERT_TRUE(Until([&] { return backend_.running() == 1; }));
  EXPECT_FALSE(server_->Drain(absl::Milliseconds(50)));
  client.join();
  EXPECT_EQ(running.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(running.status.error_message(), HasSubstr("send the request again"));
  EXPECT_FALSE(running.text.empty());
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(backend_.aborts, 1);
}

TEST_F(EndTest, AServerThatIsTakenDownTellsItsClients) {
  Start();
  WriteForever();
  Answer running;
  std::thread client([&] { running = Ask(Hello()); });
  ASSERT_TRUE(Until([&] { return backend_.running() == 1; }));
  server_.reset();
  client.join();
  EXPECT_EQ(running.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Until([&] { return backend_.running() == 0; }));
}

}  // namespace
}  // namespace cuvil::server::grpc
