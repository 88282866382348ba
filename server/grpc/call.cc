#include "server/grpc/call.h"

#include <algorithm>

#include "server/grpc/read_request.h"
#include "server/grpc/server.h"
#include "server/grpc/status.h"

namespace cuvil::server::grpc {
namespace {

constexpr std::string_view kPaths[] = {
    "/cuvil.v1.Cuvil/Generate", "/cuvil.v1.Cuvil/Embed",
    "/cuvil.v1.Cuvil/Tokenize", "/cuvil.v1.Cuvil/Detokenize",
    "/cuvil.v1.Cuvil/Abort",    "/cuvil.v1.Cuvil/GetModelInfo",
    "/cuvil.v1.Cuvil/GetLoad",  "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
};

// A day: more is no deadline.
constexpr int64_t kDeadlineMsMax = int64_t{86400} * 1000;

std::string_view AcceptableId(const ::grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  if (metadata.count("x-request-id") != 1) return {};
  const ::grpc::string_ref found = metadata.find("x-request-id")->second;
  const std::string_view id(found.data(), found.size());
  return IsRequestId(id) ? id : std::string_view();
}

}  // namespace

absl::Span<const std::string_view> Methods() { return kPaths; }

std::string_view MethodPath(Method method) { return kPaths[static_cast<size_t>(method)]; }

absl::Status Call::Admit(size_t request_bytes, std::string_view id) {
  record_.endpoint = MethodPath(method_);
  record_.peer = context_->peer();
  record_.bytes_in = static_cast<int64_t>(request_bytes);
  const std::string_view wanted = IsRequestId(id) ? id : AcceptableId(*context_);
  record_.id = wanted.empty() ? Door::NewId() : std::string(wanted);
  RETURN_IF_ERROR(door_->Enter(request_bytes));
  entered_ = true;
  request_bytes_ = request_bytes;
  const bool open = method_ == Method::kReflection && door_->options().open_reflection;
  if (!open) {
    ASSIGN_OR_RETURN(record_.tenant, door_->Authorise(*context_));
  }
  started_ = true;
  door_->observer().OnStarted({.endpoint = record_.endpoint, .tenant = record_.tenant});
  return id.empty() ? absl::OkStatus() : CheckRequestId(id);
}

::grpc::Status Call::Close(const absl::Status& status, bool turned_away) {
  const ::grpc::Status out = ToGrpc(status);
  context_->AddTrailingMetadata("x-request-id", record_.id);
  AddErrorMetadata(status, context_);
  record_.status = out.error_code();
  if (!out.ok()) record_.error = std::string(status.message());
  const bool other =
      absl::IsInternal(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  if (!status.ok() && turned_away && !other) {
    http::RejectReason reason = ReasonOf(status);
    if (!entered_) {
      reason = door_->draining() ? http::RejectReason::kDraining : http::RejectReason::kConnections;
    } else if (!started_ && absl::IsResourceExhausted(status)) {
      reason = http::RejectReason::kQuota;
    }
    door_->observer().OnRejected(reason, record_.endpoint);
  }
  return out;
}

void Call::Done() {
  record_.total_s = std::chrono::duration<double>(Clock::now() - arrived_).count();
  if (started_) door_->observer().OnEnded(record_);
  if (entered_) door_->Leave(request_bytes_);
}

int64_t Call::deadline_ms() const {
  int64_t limit = absl::ToInt64Milliseconds(door_->options().request_timeout);
  const auto deadline = context_->deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return limit;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::system_clock::now());
  if (left.count() > kDeadlineMsMax) return limit;
  const int64_t asked = std::max<int64_t>(left.count(), 1);
  return limit == 0 ? asked : std::min(limit, asked);
}

absl::Status Call::WhyCancelled() const {
  if (context_->deadline() <= std::chrono::system_clock::now()) {
    return absl::DeadlineExceededError("the request's time was over before it was finished");
  }
  return absl::CancelledError("the request was cancelled");
}

}  // namespace cuvil::server::grpc
