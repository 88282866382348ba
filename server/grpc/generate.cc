#include "server/grpc/generate.h"

#include <utility>

#include "server/grpc/read_request.h"

namespace cuvil::server::grpc {

absl::StatusOr<GenerateRequest> GenerateCall::Prepare(const openai::CallContext& context) {
  ASSIGN_OR_RETURN(const openai::RequestBody body, ReadBody(*request_));
  ASSIGN_OR_RETURN(GenerateRequest request, openai::PrepareTyped(body, context));
  writer_.request_id = exchange_.id();
  writer_.logprobs = request.sampling.logprobs >= 0;
  if (writer_.logprobs || request.prompt_logprobs >= 0) {
    ASSIGN_OR_RETURN(const auto model, openai::FindModel(context.backend, body));
    writer_.tokenizer = model->tokenizer();
  }
  return request;
}

absl::Status GenerateCall::Gather(Events events) {
  const size_t before = queue_.size();
  writer_.Append(events, &queue_);
  for (size_t i = before; i < queue_.size(); ++i) queued_bytes_ += queue_[i].ByteSizeLong();
  return absl::OkStatus();
}

bool GenerateCall::SendNext() {
  if (queue_.empty()) return false;
  sending_ = std::move(queue_.front());
  queue_.pop_front();
  const size_t bytes = sending_.ByteSizeLong();
  queued_bytes_ -= bytes;
  exchange_.record().bytes_out += static_cast<int64_t>(bytes);
  exchange_.record().streamed = true;
  StartWrite(&sending_);
  return true;
}

void GenerateCall::DropQueued() {
  queue_.clear();
  queued_bytes_ = 0;
}

}  // namespace cuvil::server::grpc
