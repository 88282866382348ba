// /tmp/perf-PID.map: the names of generated kernels for Linux perf, which cannot see them
// otherwise.
#pragma once

#include "base/status.h"
#include "compiler/driver/compile.h"

namespace cuvil::cli {

// Appends one line per kernel (address, size, symbol) to the map of this process. The file is made
// anew, never followed through a link that somebody else put there.
absl::Status WritePerfMap(const driver::Compiled& compiled);

}  // namespace cuvil::cli
