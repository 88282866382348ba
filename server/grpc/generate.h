// Generate: one request, its answer as a stream.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>

#include "proto/cuvil/v1/cuvil.pb.h"
#include "server/grpc/model_call.h"
#include "server/grpc/write_events.h"

namespace cuvil::server::grpc {

class GenerateCall : public ModelCall, public ::grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  GenerateCall(Door* door, ::grpc::CallbackServerContext* context,
               const v1::GenerateRequest* request)
      : ModelCall(door, context, Method::kGenerate), request_(request) {}

  void OnWriteDone(bool ok) override { OnSent(ok); }
  void OnCancel() override { OnClientGone(); }
  void OnDone() override { OnReactorDone(); }

 protected:
  absl::StatusOr<GenerateRequest> Prepare(const openai::CallContext& context) override;
  absl::Status Gather(Events events) override;
  bool SendNext() override;
  void DropQueued() override;
  size_t QueuedBytes() const override { return queued_bytes_; }
  void FinishReactor(::grpc::Status status) override { Finish(std::move(status)); }

 private:
  const v1::GenerateRequest* const request_;  // gRPC's; read by Prepare alone
  EventWriter writer_;
  std::deque<v1::GenerateResponse> queue_;
  size_t queued_bytes_ = 0;
  v1::GenerateResponse sending_;
};

}  // namespace cuvil::server::grpc
