#include "server/daemon/door_reporter.h"

namespace cuvil::server {

using ops::Event;
using ops::Key;

namespace {

// gRPC's codes that stand where HTTP has 5xx.
bool IsOurFault(int code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace

// HTTP's alone: gRPC does not tell how many it has.
void DoorReporter::OnConnections(int64_t open) { metrics_->SetHttpConnections(open); }

void DoorReporter::OnStarted(const http::RequestStart& start) {
  metrics_->RequestStarted(start.endpoint, protocol_);
}

void DoorReporter::OnEnded(const http::RequestRecord& r) {
  const bool rpc = protocol_ == "grpc";
  const std::string code = rpc ? absl::StatusCodeToString(static_cast<absl::StatusCode>(r.status))
                               : absl::StrCat(r.status);
  metrics_->RequestEnded({.endpoint = r.endpoint,
                          .protocol = protocol_,
                          .code = code,
                          .finish_reason = r.finish_reason,
                          .prepare_s = r.prepare_s});
  const ops::Level level =
      (rpc ? IsOurFault(r.status) : r.status >= 500) ? ops::Level::kWarning : ops::Level::kInfo;
  if (!log_->Enabled(level)) return;
  log_->Write(level, Event::kRequest,
              {{Key::kRequestId, r.id},
               {Key::kAnswerId, r.answer_id},
               {Key::kEndpoint, r.endpoint},
               {Key::kProtocol, protocol_},
               {Key::kMethod, r.method},
               {Key::kModel, r.model},
               {Key::kTenant, r.tenant},
               {Key::kPeer, r.peer},
               {Key::kCode, static_cast<int64_t>(r.status)},
               {Key::kFinishReason, r.finish_reason},
               {Key::kStreamed, r.streamed},
               {Key::kPromptTokens, r.usage.prompt_tokens},
               {Key::kCachedTokens, r.usage.cached_tokens},
               {Key::kGeneratedTokens, r.usage.completion_tokens},
               {Key::kTrimmedTokens, r.usage.trimmed_tokens},
               {Key::kPreemptions, r.usage.preemptions},
               {Key::kQueueS, r.timings.queue_s},
               {Key::kFirstTokenS, r.timings.first_token_s},
               {Key::kTotalS, r.total_s}});
}

void DoorReporter::OnRejected(http::RejectReason reason, std::string_view endpoint) {
  metrics_->Rejected(http::RejectName(reason));
  log_->Debug(Event::kRejected,
              {{Key::kReason, http::RejectName(reason)}, {Key::kEndpoint, endpoint}});
}

}  // namespace cuvil::server
