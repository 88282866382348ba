// What a configuration that was read again changes in a running server. API keys count at once; all
// else at the next start, and is named, so that nobody believes otherwise. Pure.
#pragma once

#include <string>

#include "base/status.h"
#include "server/ops/config.h"
#include "server/ops/keys.h"

namespace cuvil::ops {

struct Reload {
  KeySet keys;
  std::string changed;  // "3 API keys now: 1 added, 1 removed, 0 with other rights"
  std::string waits;    // options that differ and count at the next start; empty: none
};

// `running` is what counts now. KeySet's errors; FailedPrecondition when no key is left of some: a
// file that is being rewritten must not open the server to everyone.
absl::StatusOr<Reload> PlanReload(const Config& running, const Config& read);

}  // namespace cuvil::ops
