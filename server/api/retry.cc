#include "server/api/retry.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "base/checked.h"

namespace cuvil::server {
namespace {

constexpr char kUrl[] = "cuvil/retry-after-s";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, int64_t wait_us) {
  constexpr int64_t kMost = 60;
  const int64_t seconds =
      std::clamp<int64_t>(CeilDiv<int64_t>(std::max<int64_t>(0, wait_us), 1'000'000), 1, kMost);
  const std::string text = absl::StrCat(seconds);
  status.SetPayload(kUrl, absl::Cord(absl::string_view(text)));
  return status;
}

int RetryAfterS(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kUrl);
  int seconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &seconds)) return 0;
  return seconds;
}

}  // namespace cuvil::server
