// cuvil.v1.Cuvil: which method does what. Any thread.
#pragma once

#include "proto/cuvil/v1/cuvil.grpc.pb.h"
#include "server/grpc/door.h"

namespace cuvil::server::grpc {

class CuvilService : public v1::Cuvil::CallbackService {
 public:
  explicit CuvilService(Door* door) : door_(door) {}

  ::grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      ::grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  ::grpc::ServerUnaryReactor* Embed(::grpc::CallbackServerContext* context,
                                    const v1::EmbedRequest* request,
                                    v1::EmbedResponse* response) override;
  ::grpc::ServerUnaryReactor* Tokenize(::grpc::CallbackServerContext* context,
                                       const v1::TokenizeRequest* request,
                                       v1::TokenizeResponse* response) override;
  ::grpc::ServerUnaryReactor* Detokenize(::grpc::CallbackServerContext* context,
                                         const v1::DetokenizeRequest* request,
                                         v1::DetokenizeResponse* response) override;
  ::grpc::ServerUnaryReactor* Abort(::grpc::CallbackServerContext* context,
                                    const v1::AbortRequest* request,
                                    v1::AbortResponse* response) override;
  ::grpc::ServerUnaryReactor* GetModelInfo(::grpc::CallbackServerContext* context,
                                           const v1::GetModelInfoRequest* request,
                                           v1::GetModelInfoResponse* response) override;
  ::grpc::ServerUnaryReactor* GetLoad(::grpc::CallbackServerContext* context,
                                      const v1::GetLoadRequest* request,
                                      v1::GetLoadResponse* response) override;

 private:
  Door* const door_;
};

}  // namespace cuvil::server::grpc
