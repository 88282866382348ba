// grpc.reflection.v1alpha: what services there are and what their messages look like, for grpcurl
// and its like. Any thread.
#pragma once

#include "proto/grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/grpc/door.h"

namespace cuvil::server::grpc {

class ReflectionService : public ::grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(Door* door) : door_(door) {}

  ::grpc::ServerBidiReactor<::grpc::reflection::v1alpha::ServerReflectionRequest,
                            ::grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(::grpc::CallbackServerContext* context) override;

 private:
  Door* const door_;
};

// The answer to one question. Pure.
void Reflect(const ::grpc::reflection::v1alpha::ServerReflectionRequest& request,
             ::grpc::reflection::v1alpha::ServerReflectionResponse* response);

}  // namespace cuvil::server::grpc
