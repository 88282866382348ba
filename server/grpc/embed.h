// Embed: one request, one vector of length 1.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "proto/cuvil/v1/cuvil.pb.h"
#include "server/grpc/model_call.h"

namespace cuvil::server::grpc {

class EmbedCall : public ModelCall, public ::grpc::ServerUnaryReactor {
 public:
  EmbedCall(Door* door, ::grpc::CallbackServerContext* context, const v1::EmbedRequest* request,
            v1::EmbedResponse* response)
      : ModelCall(door, context, Method::kEmbed), request_(request), response_(response) {}

  void OnCancel() override { OnClientGone(); }
  void OnDone() override { OnReactorDone(); }

 protected:
  absl::StatusOr<GenerateRequest> Prepare(const openai::CallContext& context) override;
  absl::Status Gather(Events events) override;
  bool SendNext() override { return false; }
  void DropQueued() override {}
  void FinishReactor(::grpc::Status status) override;

 private:
  // gRPC's: read by Prepare alone, and written before Finish.
  const v1::EmbedRequest* const request_;
  v1::EmbedResponse* const response_;
};

}  // namespace cuvil::server::grpc
