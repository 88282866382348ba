#include "server/grpc/embed.h"

#include <utility>

#include "server/grpc/read_request.h"
#include "server/grpc/write_events.h"
#include "server/openai/embedding_answer.h"

namespace cuvil::server::grpc {

absl::StatusOr<GenerateRequest> EmbedCall::Prepare(const openai::CallContext& context) {
  ASSIGN_OR_RETURN(const openai::RequestBody body, ReadBody(*request_));
  return openai::PrepareTypedEmbedding(body, context);
}

absl::Status EmbedCall::Gather(Events events) {
  if (!events.embedding.empty()) {
    if (!openai::Normalise(&events.embedding)) {
      return absl::InternalError("the embedding is not finite");
    }
    response_->mutable_embedding()->Assign(events.embedding.begin(), events.embedding.end());
  }
  if (!events.done) return absl::OkStatus();
  if (response_->embedding().empty()) return absl::InternalError("the model gave no embedding");
  response_->set_request_id(exchange_.id());
  WriteUsage(events.usage, response_->mutable_usage());
  return absl::OkStatus();
}

void EmbedCall::FinishReactor(::grpc::Status status) {
  if (status.ok()) exchange_.record().bytes_out = static_cast<int64_t>(response_->ByteSizeLong());
  Finish(std::move(status));
}

}  // namespace cuvil::server::grpc
