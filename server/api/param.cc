#include "server/api/param.h"

#include "absl/strings/cord.h"

namespace cuvil::server {
namespace {

constexpr char kUrl[] = "cuvil/param";

}  // namespace

absl::Status WithParam(std::string_view param, absl::Status status) {
  if (!status.ok() && ParamOf(status).empty()) status.SetPayload(kUrl, absl::Cord(Sv(param)));
  return status;
}

std::string ParamOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace cuvil::server
