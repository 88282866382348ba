#include "server/grpc/status.h"

#include <grpcpp/server_context.h>

#include "server/openai/error.h"

namespace cuvil::server::grpc {
namespace {

using http::RejectReason;

::grpc::StatusCode CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return ::grpc::StatusCode::INVALID_ARGUMENT;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kAborted:
      return ::grpc::StatusCode::INTERNAL;
    default:
      return static_cast<::grpc::StatusCode>(code);  // the numbers are gRPC's
  }
}

}  // namespace

::grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return ::grpc::Status::OK;
  return ::grpc::Status(CodeOf(status.code()), openai::ErrorOf(status).message);
}

void AddErrorMetadata(const absl::Status& status, ::grpc::ServerContextBase* context) {
  if (status.ok()) return;
  const openai::ApiError error = openai::ErrorOf(status);
  if (!error.param.empty()) context->AddTrailingMetadata("cuvil-error-param", error.param);
  if (!error.code.empty()) context->AddTrailingMetadata("cuvil-error-code", error.code);
  // Obeyed by clients whose service configuration has retries.
  if (error.retry_after_s > 0) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms",
                                 absl::StrCat(error.retry_after_s * 1000));
  }
  if (error.never_retry) context->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
}

RejectReason ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return RejectReason::kAuth;
    case absl::StatusCode::kNotFound:
      return RejectReason::kNotFound;
    case absl::StatusCode::kResourceExhausted:
      return RejectReason::kQueueFull;
    case absl::StatusCode::kUnavailable:
      return RejectReason::kUnavailable;
    default:
      return openai::ErrorOf(status).code == openai::kContextLengthExceeded
                 ? RejectReason::kTooLong
                 : RejectReason::kInvalid;
  }
}

}  // namespace cuvil::server::grpc
