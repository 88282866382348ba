// Checks of a Program that came from outside (a cache, a file): afterwards every index is in range
// and every offset stays inside its region, so the runtime needs no further checks. Pure functions.
#pragma once

#include "base/status.h"
#include "runtime/program.h"

namespace cuvil::runtime {

// 64 TiB: beyond any machine, and far from overflowing sums of offsets.
inline constexpr int64_t kRegionBytesMax = int64_t{1} << 46;

// Everything: names, kernels, weights, plans. InvalidArgument names what is wrong.
absl::Status Validate(const Program& program);

// One plan against the program's tables: launches match their kernels, arguments stay inside their
// regions, weights are waited for, and slots alive at the same time share no byte.
absl::Status ValidatePlan(const Program& program, const Plan& plan);

// The weights alone: sizes match layouts and rows, places are aligned, inside the region and
// apart from each other.
absl::Status ValidateWeights(const Program& program);

}  // namespace cuvil::runtime
