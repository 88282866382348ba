// What a compiled program consists of and why, for people and as JSON: one row per kernel with the
// costs of compiling it and what its machine code looks like, and every decision that formed or
// refused a launch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "runtime/program.h"

namespace cuvil::cli {

using Objects = std::vector<std::pair<std::string, std::vector<uint8_t>>>;  // symbol, ELF

// {"key","target","kernels":[{"symbol","launches","compile_ms","ir_ops","code_bytes","instructions",
// "hot_loops","hot_loop_spills","hot_loop_vector_spills"}],"plans":[{"name","rows_max","arena_bytes",
// "launches":[{"label","kernel","decision"}]}],"decisions":[{"rule","applied","reason","trust","sources"}]}
// REQUIRES: objects aligned with program.kernels.
absl::StatusOr<Json> Explain(const runtime::Program& program, const Objects& objects);

// The same as tables; decisions that differ only in where they were taken share a line.
std::string ExplanationText(const Json& explanation);

}  // namespace cuvil::cli
