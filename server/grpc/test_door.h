// A door over a backend without a model, and clients of it, for tests.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/cuvil/v1/cuvil.grpc.pb.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "proto/grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/grpc/server.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::grpc {

// What the door told: started = ended once it is quiet.
class CountingObserver : public http::Observer {
 public:
  void OnStarted(const http::RequestStart&) override { ++started; }
  void OnEnded(const http::RequestRecord& record) override {
    const std::lock_guard lock(mutex_);
    records_.push_back(record);
    ++ended;
  }
  void OnRejected(http::RejectReason reason, std::string_view) override {
    const std::lock_guard lock(mutex_);
    rejected_.push_back(reason);
  }
  http::RequestRecord last() {
    const std::lock_guard lock(mutex_);
    return records_.empty() ? http::RequestRecord() : records_.back();
  }
  std::vector<http::RejectReason> rejected() {
    const std::lock_guard lock(mutex_);
    return rejected_;
  }
  std::atomic<int> started = 0, ended = 0;

 private:
  std::mutex mutex_;
  std::vector<http::RequestRecord> records_;
  std::vector<http::RejectReason> rejected_;
};

inline bool Until(const std::function<bool()>& condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class DoorTest : public testing::Test {
 protected:
  using Context = ::grpc::ClientContext;
  using Status = ::grpc::Status;

  DoorTest() {
    options_.port = 0;
    hooks_.observer = &observer_;
  }
  ~DoorTest() override { Stop(); }

  void Start() {
    auto server = Server::Start(options_, hooks_, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Connect();
    stub_ = v1::Cuvil::NewStub(channel_);
    health_ = ::grpc::health::v1::Health::NewStub(channel_);
  }
  void Stop() {
    server_.reset();
    EXPECT_EQ(observer_.started, observer_.ended);
  }
  std::shared_ptr<::grpc::Channel> Connect() {
    ::grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return ::grpc::CreateCustomChannel(server_->address(), ::grpc::InsecureChannelCredentials(),
                                       arguments);
  }

  static v1::GenerateRequest Hello(int64_t max_tokens = 3) {
    v1::GenerateRequest request;
    v1::Message* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content("hello");
    request.set_max_tokens(max_tokens);
    return request;
  }
  struct Answer {
    std::vector<v1::GenerateResponse> messages;
    Status status;
    std::string text;  // of choice 0
  };
  Answer Ask(const v1::GenerateRequest& request, Context* context = nullptr) {
    Context own;
    const auto reader = stub_->Generate(context != nullptr ? context : &own, request);
    Answer answer;
    for (v1::GenerateResponse message; reader->Read(&message);) {
      if (message.has_token() && message.token().choice() == 0) {
        answer.text += message.token().text();
      }
      answer.messages.push_back(std::move(message));
    }
    answer.status = reader->Finish();
    return answer;
  }
  static std::string Trailer(const Context& context, const char* key) {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto found = metadata.find(key);
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }
  ::grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& name) {
    Context context;
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service(name);
    ::grpc::health::v1::HealthCheckResponse response;
    const Status status = health_->Check(&context, request, &response);
    if (status.error_code() == ::grpc::StatusCode::NOT_FOUND) {
      return ::grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN;
    }
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  FakeBackend backend_;
  CountingObserver observer_;
  Options options_;
  Hooks hooks_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<v1::Cuvil::Stub> stub_;
  std::unique_ptr<::grpc::health::v1::Health::Stub> health_;
};

}  // namespace cuvil::server::grpc
