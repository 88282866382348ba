#include "server/grpc/unreadable.h"

#include <string_view>

namespace cuvil::server::grpc {
namespace {

using ::grpc::experimental::InterceptionHookPoints;

class Interceptor : public ::grpc::experimental::Interceptor {
 public:
  Interceptor(Door* door, std::string_view method) : door_(door), method_(method) {}

  void Intercept(::grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      unreadable_ = methods->GetRecvMessage() == nullptr;
    }
    if (unreadable_ &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      Replace(methods);
    }
    methods->Proceed();
  }

 private:
  // Also the end of a client's stream has no message: the status of its method is left alone.
  void Replace(::grpc::experimental::InterceptorBatchMethods* methods) {
    const ::grpc::Status status = methods->GetSendStatus();
    if (status.error_code() != ::grpc::StatusCode::UNIMPLEMENTED) return;
    if (!status.error_message().empty()) return;
    door_->observer().OnRejected(http::RejectReason::kInvalid, method_);
    methods->ModifySendStatus(::grpc::Status(
        ::grpc::StatusCode::INVALID_ARGUMENT,
        "the request is no message of this method; build both sides from the same .proto file"));
  }

  Door* const door_;
  const std::string_view method_;  // gRPC's, which lives as long as the server
  bool unreadable_ = false;
};

class Factory : public ::grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(Door* door) : door_(door) {}
  ::grpc::experimental::Interceptor* CreateServerInterceptor(
      ::grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(door_, info->method());
  }

 private:
  Door* const door_;
};

}  // namespace

std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> UnreadableToInvalid(
    Door* door) {
  return std::make_unique<Factory>(door);
}

}  // namespace cuvil::server::grpc
