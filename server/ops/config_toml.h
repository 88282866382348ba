// The TOML layer of the configuration.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "server/ops/config.h"

namespace cuvil::ops {

// More than any configuration a person writes.
inline constexpr size_t kConfigBytesMax = size_t{1} << 20;

// Sets what the file says and notes its lines as origins. `path` is only a name for sentences.
// InvalidArgument: "path:line: what". Safe on any bytes.
absl::Status ApplyToml(std::string_view text, const std::string& path, Effective* effective);

}  // namespace cuvil::ops
