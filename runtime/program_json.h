// Program as JSON, for the artifact cache and for people. Complete and deterministic: one program
// gives one text, and reading it back gives an equal program. Pure functions.
#pragma once

#include "base/json.h"
#include "runtime/program.h"

namespace cuvil::runtime {

Json ToJson(const Program& program);

// Reads what ToJson wrote. The JSON may be hostile: counts are bounded, unknown, missing and
// mistyped fields are refused, and the result has passed Validate. InvalidArgument names the field.
absl::StatusOr<Program> FromJson(const Json& json);

}  // namespace cuvil::runtime
