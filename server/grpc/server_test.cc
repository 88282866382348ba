// Every method over real sockets, against a backend without a model.
#include "server/grpc/server.h"

#include <grpcpp/generic/generic_stub.h>

#include <cmath>
#include <future>
#include <limits>

#include "gmock/gmock.h"
#include "server/grpc/test_door.h"

namespace cuvil::server::grpc {
namespace {

using ::grpc::StatusCode;
using testing::HasSubstr;
using Serving = ::grpc::health::v1::HealthCheckResponse;

class ServerTest : public DoorTest {
 protected:
  ServerTest() { options_.request_timeout = absl::Seconds(100); }
};

TEST_F(ServerTest, GenerateStreamsTokensFinishAndDone) {
  Start();
  v1::GenerateRequest request = Hello();
  request.set_request_id("my-id.1");
  Context context;
  const Answer answer = Ask(request, &context);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.messages.size(), 5u);
  EXPECT_EQ(answer.text, "abc");
  for (const auto& message : answer.messages) EXPECT_EQ(message.request_id(), "my-id.1");
  EXPECT_EQ(answer.messages[1].token().id(), ByteToken('b'));
  EXPECT_FALSE(answer.messages[1].token().has_logprob());
  EXPECT_EQ(answer.messages[3].finish().reason(), v1::FINISH_REASON_LENGTH);
  const v1::Usage usage = answer.messages[4].done().usage();
  EXPECT_EQ(usage.completion_tokens(), 3);
  EXPECT_EQ(usage.cached_tokens(), 1);
  EXPECT_EQ(backend_.PromptText(), "user:hello<|im_end|>assistant:");
  EXPECT_EQ(Trailer(context, "x-request-id"), "my-id.1");
  const GenerateRequest seen = backend_.last_request();
  EXPECT_EQ(seen.id, "my-id.1");
  EXPECT_EQ(seen.sampling.temperature, 1);  // HTTP's defaults
  EXPECT_EQ(seen.sampling.logprobs, -1);
  EXPECT_EQ(seen.deadline_ms, 100000);
  ASSERT_TRUE(Until([&] { return observer_.ended == 1; }));
  const http::RequestRecord record = observer_.last();
  EXPECT_EQ(record.endpoint, "/cuvil.v1.Cuvil/Generate");
  EXPECT_EQ(record.status, 0);
  EXPECT_EQ(record.finish_reason, "length");
  EXPECT_EQ(record.model, "org/tiny");
  EXPECT_EQ(record.usage.completion_tokens, 3);
}

TEST_F(ServerTest, EveryFieldArrives) {
  Start();
  v1::GenerateRequest request;
  request.set_text("hello");
  request.set_model("org/tiny");
  v1::Sampling* s = request.mutable_sampling();
  s->set_temperature(0.5);
  s->set_top_p(0.25);
  s->set_top_k(7);
  s->set_min_p(0.125);
  s->set_repetition_penalty(1.5);
  s->set_presence_penalty(-1);
  s->set_frequency_penalty(2);
  (*s->mutable_logit_bias())[9] = -100;
  s->set_seed(std::numeric_limits<uint64_t>::max());
  request.set_max_tokens(4);
  request.set_min_tokens(2);
  request.set_n(2);
  request.set_best_of(3);
  request.add_stop("zzz");
  request.add_stop_token_ids(11);
  request.set_ignore_eos(true);
  request.set_include_stop(true);
  request.set_logprobs(2);
  request.set_prompt_logprobs(1);
  request.mutable_trim()->set_max_kv_len(64);
  request.mutable_trim()->set_sinks(8);
  request.set_priority(-5);
  request.set_cache_salt("salt");
  const Answer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const GenerateRequest seen = backend_.last_request();
  EXPECT_EQ(seen.sampling.temperature, 0.5);
  EXPECT_EQ(seen.sampling.top_p, 0.25);
  EXPECT_EQ(seen.sampling.top_k, 7);
  EXPECT_EQ(seen.sampling.min_p, 0.125);
  EXPECT_EQ(seen.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(seen.sampling.presence_penalty, -1);
  EXPECT_EQ(seen.sampling.frequency_penalty, 2);
  EXPECT_EQ(seen.sampling.logit_bias, (std::map<int32_t, double>{{9, -100.0}}));
  EXPECT_EQ(seen.sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(seen.sampling.logprobs, 2);
  EXPECT_EQ(seen.prompt_logprobs, 1);
  EXPECT_EQ(seen.max_tokens, 4);
  EXPECT_EQ(seen.min_tokens, 2);
  EXPECT_EQ(seen.choices, 2);
  EXPECT_EQ(seen.best_of, 3);
  EXPECT_EQ(seen.stop, std::vector<std::string>{"zzz"});
  EXPECT_EQ(seen.stop_tokens, std::vector<int32_t>{11});
  EXPECT_TRUE(seen.ignore_eos);
  EXPECT_TRUE(seen.include_stop);
  ASSERT_TRUE(seen.trim.has_value());
  EXPECT_EQ(seen.trim->max_kv_len, 64);
  EXPECT_EQ(seen.trim->sinks, 8);
  EXPECT_EQ(seen.priority, -5);
  EXPECT_EQ(seen.cache_salt, "salt");

  const v1::PromptLogprobs& prompt = answer.messages.front().prompt_logprobs();
  ASSERT_EQ(prompt.tokens_size(), static_cast<int>(seen.prompt.size()));
  EXPECT_FALSE(prompt.tokens(0).has_logprob());
  EXPECT_EQ(prompt.tokens(1).logprob(), -2);
  const v1::Token& token = answer.messages[1].token();
  EXPECT_EQ(token.logprob(), -0.5);
  EXPECT_EQ(token.piece(), "a");
  ASSERT_EQ(token.top_size(), 2);
  EXPECT_EQ(token.top(1).piece(), "b");
  const v1::Done& done = answer.messages.back().done();
  EXPECT_EQ(std::vector<int>(done.best().begin(), done.best().end()), (std::vector<int>{2, 1, 0}));
}

TEST_F(ServerTest, NamesWhatItDoesNotAccept) {
  Start();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  struct Case {
    std::function<void(v1::GenerateRequest*)> change;
    StatusCode code;
    const char* sentence;
    const char* param;
  };
  const auto bad = StatusCode::INVALID_ARGUMENT;
  const Case cases[] = {
      {[](auto* r) { r->mutable_sampling()->set_temperature(kNan); }, bad, "temperature is nan",
       "temperature"},
      {[](auto* r) { r->mutable_sampling()->set_temperature(kInf); }, bad, "temperature is inf",
       "temperature"},
      {[](auto* r) { r->mutable_sampling()->set_temperature(2.5); }, bad, "from 0 to 2",
       "temperature"},
      {[](auto* r) { r->mutable_sampling()->set_top_k(-2); }, bad, "top_k is -2", "top_k"},
      {[](auto* r) { r->mutable_sampling()->set_repetition_penalty(0); }, bad, "above 0",
       "repetition_penalty"},
      {[](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[1] = kNan; }, bad,
       "from -100 to 100", "logit_bias"},
      {[](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[-1] = 1; }, bad, "no token id",
       "logit_bias"},
      {[](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[1 << 30] = 1; }, bad,
       "vocabulary", "logit_bias"},
      {[](auto* r) { r->set_n(129); }, bad, "n is 129", "n"},
      {[](auto* r) { r->set_n(-1); }, bad, "n is -1", "n"},
      {[](auto* r) { r->set_n(3), r->set_best_of(2); }, bad, "below n", "best_of"},
      {[](auto* r) { r->set_max_tokens(0); }, bad, "at least 1", "max_tokens"},
      {[](auto* r) { r->set_max_tokens(1000); }, bad, "context holds 256", "max_tokens"},
      {[](auto* r) { r->set_min_tokens(9); }, bad, "above the limit of 3", "min_tokens"},
      {[](auto* r) { r->clear_max_tokens(), r->set_min_tokens(256); }, bad, "above the limit of",
       "min_tokens"},
      {[](auto* r) { r->add_stop(""); }, bad, "empty string", "stop"},
      {[](auto* r) { r->add_stop_token_ids(-1); }, bad, "token -1", "stop_token_ids"},
      {[](auto* r) { r->set_logprobs(21); }, bad, "from 0 to 20", "logprobs"},
      {[](auto* r) { r->set_prompt_logprobs(-1); }, bad, "from 0 to 20", "prompt_logprobs"},
      {[](auto* r) { r->set_priority(101); }, bad, "priority is 101", "priority"},
      {[](auto* r) { r->set_cache_salt(std::string(513, 'x')); }, bad, "512", "cache_salt"},
      {[](auto* r) { r->mutable_trim()->set_max_kv_len(4); }, bad, "above the 4", "max_kv_len"},
      {[](auto* r) { r->mutable_chat()->clear_messages(); }, bad, "is empty", "messages"},
      {[](auto* r) { r->mutable_chat()->mutable_messages(0)->set_role("king"); }, bad,
       "messages[0].role must be", "messages[0].role"},
      {[](auto* r) { r->mutable_chat()->set_template_variables("[]"); }, bad, "object",
       "template_variables"},
      {[](auto* r) { r->clear_prompt(); }, bad, "either prompt or messages", "prompt"},
      {[](auto* r) { r->set_text(""); }, bad, "no tokens", "prompt"},
      {[](auto* r) { r->mutable_tokens()->add_ids(1 << 20); }, bad, "vocabulary", "prompt"},
      {[](auto* r) { r->set_request_id("a b"); }, bad, "request_id must be", "request_id"},
      {[](auto* r) { r->set_request_id(std::string(129, 'a')); }, bad, "1 to 128", "request_id"},
      {[](auto* r) { r->set_model("nobody"); }, StatusCode::NOT_FOUND, "did you mean", "model"},
      {[](auto* r) { r->set_model("sleeping"); }, StatusCode::UNAVAILABLE, "not available now",
       "model"},
  };
  for (const Case& c : cases) {
    v1::GenerateRequest request = Hello();
    c.change(&request);
    Context context;
    const Answer answer = Ask(request, &context);
    EXPECT_EQ(answer.status.error_code(), c.code) << c.sentence;
    EXPECT_THAT(answer.status.error_message(), HasSubstr(c.sentence));
    EXPECT_EQ(Trailer(context, "cuvil-error-param"), c.param) << c.sentence;
    EXPECT_FALSE(Trailer(context, "x-request-id").empty());
    EXPECT_TRUE(answer.messages.empty());
  }
  EXPECT_EQ(backend_.submissions, 0);
}

TEST_F(ServerTest, BackendsRefusalIsTheStatus) {
  Start();
  backend_.set_queue_max(0);
  Context context;
  const Answer full = Ask(Hello(), &context);
  EXPECT_EQ(full.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(full.status.error_message(), "the queue is full");
  EXPECT_EQ(Trailer(context, "grpc-retry-pushback-ms"), "1000");
  backend_.set_submit_status(absl::InternalError("/srv/secret/path broke"));
  const Answer broken = Ask(Hello());
  EXPECT_EQ(broken.status.error_code(), StatusCode::INTERNAL);
  EXPECT_THAT(broken.status.error_message(), testing::Not(HasSubstr("secret")));
}

TEST_F(ServerTest, AFailureInTheMiddleComesAfterWhatWasSaid) {
  Start();
  backend_.set_script([](const GenerateRequest& request) {
    std::vector<Events> steps = FakeBackend::Letters(request);
    steps.back().tokens.clear();
    steps.back().ended = {{.choice = 0, .reason = FinishReason::kDeadline}};
    return steps;
  });
  const Answer late = Ask(Hello());
  EXPECT_EQ(late.text, "ab");
  EXPECT_EQ(late.status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  backend_.set_script([](const GenerateRequest& request) {
    std::vector<Events> steps = FakeBackend::Letters(request);
    steps.back() = {};
    steps.back().done = true;
    steps.back().status = absl::DataLossError("cuvil::Thing failed");
    return steps;
  });
  const Answer broken = Ask(Hello());
  EXPECT_EQ(broken.text, "ab");
  EXPECT_EQ(broken.status.error_code(), StatusCode::INTERNAL);
  EXPECT_THAT(broken.status.error_message(), testing::Not(HasSubstr("cuvil::")));
}

TEST_F(ServerTest, Embed) {
  Start();
  v1::EmbedRequest request;
  request.set_text("hello");
  Context context;
  v1::EmbedResponse response;
  const Status status = stub_->Embed(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.embedding(), testing::ElementsAre(0.6F, 0, -0.8F, 0));
  EXPECT_GT(response.usage().prompt_tokens(), 0);
  EXPECT_FALSE(response.request_id().empty());
  Context again;
  EXPECT_EQ(stub_->Embed(&again, {}, &response).error_message(), "input is missing");
}

TEST_F(ServerTest, TokenizeAndDetokenize) {
  Start();
  v1::TokenizeRequest request;
  request.set_text("hello");
  v1::TokenizeResponse tokens;
  Context one;
  ASSERT_TRUE(stub_->Tokenize(&one, request, &tokens).ok());
  EXPECT_EQ(tokens.context(), 256);
  v1::DetokenizeRequest back;
  *back.mutable_tokens() = tokens.tokens();
  v1::DetokenizeResponse text;
  Context two;
  ASSERT_TRUE(stub_->Detokenize(&two, back, &text).ok());
  EXPECT_EQ(text.text(), "hello");
  // Half a character is no text.
  back.clear_tokens();
  back.add_tokens(ByteToken('\xC3'));
  Context three;
  ASSERT_TRUE(stub_->Detokenize(&three, back, &text).ok());
  EXPECT_EQ(text.text(), "\xEF\xBF\xBD");
  back.add_tokens(-1);
  Context four;
  EXPECT_EQ(stub_->Detokenize(&four, back, &text).error_code(), StatusCode::INVALID_ARGUMENT);
  Context five;
  EXPECT_EQ(stub_->Tokenize(&five, {}, &tokens).error_message(), "give either prompt or messages");
}

TEST_F(ServerTest, ModelsAndLoad) {
  Start();
  v1::GetModelInfoResponse models;
  Context one;
  ASSERT_TRUE(stub_->GetModelInfo(&one, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "org/tiny");
  EXPECT_EQ(models.models(0).state(), "ready");
  EXPECT_EQ(models.models(0).context(), 256);
  v1::GetModelInfoRequest request;
  request.set_model("nobody");
  Context two;
  EXPECT_EQ(stub_->GetModelInfo(&two, request, &models).error_code(), StatusCode::NOT_FOUND);
  v1::GetLoadResponse load;
  Context three;
  EXPECT_TRUE(stub_->GetLoad(&three, {}, &load).ok());
}

TEST_F(ServerTest, KeysAreAskedForEverywhereButForHealth) {
  hooks_.authorizer = [](const http::Credentials& c) -> absl::StatusOr<std::string> {
    if (c.bearer == "secret") return std::string("team");
    if (c.bearer == "poor") return absl::ResourceExhaustedError("over its quota");
    if (c.bearer == "other") return absl::PermissionDeniedError("may not");
    return absl::UnauthenticatedError("give a key");
  };
  options_.open_reflection = false;
  Start();
  const auto ask = [this](const char* authorization) {
    Context context;
    if (authorization != nullptr) context.AddMetadata("authorization", authorization);
    return Ask(Hello(), &context).status;
  };
  EXPECT_EQ(ask(nullptr).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask("Basic secret").error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask("Bearer wrong").error_message(), "give a key");
  EXPECT_EQ(ask("Bearer poor").error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ask("Bearer other").error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(observer_.rejected().size(), 5u);
  EXPECT_EQ(observer_.rejected()[3], http::RejectReason::kQuota);
  EXPECT_EQ(observer_.started, 0);
  EXPECT_TRUE(ask("bearer secret").ok());
  EXPECT_EQ(backend_.last_request().tenant, "team");
  const auto refused = [](const Status& s) {
    return s.error_code() == StatusCode::UNAUTHENTICATED;
  };
  {
    Context c1, c2, c3, c4, c5, c6, c7;
    v1::EmbedResponse r1;
    EXPECT_TRUE(refused(stub_->Embed(&c1, {}, &r1)));
    v1::TokenizeResponse r2;
    EXPECT_TRUE(refused(stub_->Tokenize(&c2, {}, &r2)));
    v1::DetokenizeResponse r3;
    EXPECT_TRUE(refused(stub_->Detokenize(&c3, {}, &r3)));
    v1::AbortResponse r4;
    EXPECT_TRUE(refused(stub_->Abort(&c4, {}, &r4)));
    v1::GetModelInfoResponse r5;
    EXPECT_TRUE(refused(stub_->GetModelInfo(&c5, {}, &r5)));
    v1::GetLoadResponse r6;
    EXPECT_TRUE(refused(stub_->GetLoad(&c6, {}, &r6)));
    const auto reflection = ::grpc::reflection::v1alpha::ServerReflection::NewStub(channel_);
    EXPECT_TRUE(refused(reflection->ServerReflectionInfo(&c7)->Finish()));
  }
  EXPECT_EQ(Health(""), Serving::SERVING);
}

TEST_F(ServerTest, HealthByModel) {
  Start();
  EXPECT_EQ(Health(""), Serving::SERVING);
  EXPECT_EQ(Health("cuvil.v1.Cuvil"), Serving::SERVING);
  EXPECT_EQ(Health("org/tiny"), Serving::SERVING);
  EXPECT_EQ(Health("nobody"), Serving::SERVICE_UNKNOWN);
  backend_.is_ready = false;
  EXPECT_EQ(Health(""), Serving::NOT_SERVING);
}

TEST_F(ServerTest, HealthWatch) {
  Start();
  Context context;
  const auto watch = health_->Watch(&context, {});
  Serving response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), Serving::SERVING);
  backend_.is_ready = false;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), Serving::NOT_SERVING);
  backend_.is_ready = true;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), Serving::SERVING);
  context.TryCancel();
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), StatusCode::CANCELLED);

  Context other;
  ::grpc::health::v1::HealthCheckRequest unknown;
  unknown.set_service("nobody");
  const auto nobody = health_->Watch(&other, unknown);
  ASSERT_TRUE(nobody->Read(&response));
  EXPECT_EQ(response.status(), Serving::SERVICE_UNKNOWN);
  other.TryCancel();
}

TEST_F(ServerTest, ReflectionShowsServicesAndTheirFiles) {
  Start();
  const auto stub = ::grpc::reflection::v1alpha::ServerReflection::NewStub(channel_);
  Context context;
  const auto stream = stub->ServerReflectionInfo(&context);
  ::grpc::reflection::v1alpha::ServerReflectionRequest request;
  ::grpc::reflection::v1alpha::ServerReflectionResponse response;
  request.set_list_services("");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names, testing::ElementsAre("cuvil.v1.Cuvil", "grpc.health.v1.Health",
                                          "grpc.reflection.v1alpha.ServerReflection"));
  for (const std::string& name : names) {
    request.set_file_containing_symbol(name);
    ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
    EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1) << name;
  }
  request.set_file_by_filename("cuvil/v1/cuvil.proto");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_THAT(response.file_descriptor_response().file_descriptor_proto(0), HasSubstr("Generate"));
  request.set_file_containing_symbol("no.such.Thing");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.error_response().error_code(), StatusCode::NOT_FOUND);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ServerTest, WhatIsNoMessageIsInvalidAndAnUnknownMethodIsUnimplemented) {
  Start();
  const auto ask = [this](const char* method, std::string_view bytes) {
    const ::grpc::Slice slice(bytes.data(), bytes.size());
    const ::grpc::ByteBuffer request(&slice, 1);
    ::grpc::ByteBuffer response;
    Context context;
    std::promise<Status> status;
    ::grpc::GenericStub(channel_).UnaryCall(&context, method, {}, &request, &response,
                                            [&](Status s) { status.set_value(std::move(s)); });
    return status.get_future().get();
  };
  // No message at all; a model's name that is no UTF-8.
  const std::string_view bad[] = {"\xff\xff\xff", "\x12\x01\xff"};
  int refused = 0;
  for (const char* method : {"Generate", "Embed", "Tokenize"}) {
    for (const std::string_view bytes : bad) {
      const Status status = ask(absl::StrCat("/cuvil.v1.Cuvil/", method).c_str(), bytes);
      EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << method;
      EXPECT_THAT(status.error_message(), HasSubstr("no message of this method"));
      ++refused;
    }
  }
  EXPECT_EQ(observer_.rejected(), std::vector(refused, http::RejectReason::kInvalid));
  EXPECT_EQ(observer_.started, 0);
  EXPECT_EQ(ask("/cuvil.v1.Cuvil/Nothing", "").error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(Ask(Hello()).status.ok());
}

TEST_F(ServerTest, ReflectionCanBeLeftOut) {
  options_.reflection = false;
  Start();
  Context context;
  const auto stub = ::grpc::reflection::v1alpha::ServerReflection::NewStub(channel_);
  EXPECT_EQ(stub->ServerReflectionInfo(&context)->Finish().error_code(), StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerTest, AddressesThatCannotBe) {
  options_.host = "example.org";
  EXPECT_EQ(Server::Start(options_, hooks_, &backend_).status().code(),
            absl::StatusCode::kInvalidArgument);
  options_.host = "127.0.0.1";
  Start();
  options_.port = static_cast<uint16_t>(
      std::atoi(server_->address().substr(server_->address().rfind(':') + 1).c_str()));
  EXPECT_EQ(Server::Start(options_, hooks_, &backend_).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cuvil::server::grpc
