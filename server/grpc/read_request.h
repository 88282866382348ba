// Messages of cuvil.v1 to what HTTP's bodies become, checked by the same tables: limits, defaults
// and sentences are those of server/openai. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "proto/cuvil/v1/cuvil.pb.h"
#include "server/openai/request_body.h"

namespace cuvil::server::grpc {

absl::StatusOr<openai::RequestBody> ReadBody(const v1::GenerateRequest& request);
absl::StatusOr<openai::RequestBody> ReadBody(const v1::EmbedRequest& request);
absl::StatusOr<openai::RequestBody> ReadBody(const v1::TokenizeRequest& request);
absl::StatusOr<openai::RequestBody> ReadBody(const v1::DetokenizeRequest& request);

// [A-Za-z0-9._-]{1,128}
bool IsRequestId(std::string_view text);
absl::Status CheckRequestId(std::string_view text);

}  // namespace cuvil::server::grpc
