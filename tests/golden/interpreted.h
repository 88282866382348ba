// A model's graph by the reference interpreter: what `exact` has to equal but for rounding.
#pragma once

#include "tests/golden/golden_model.h"

namespace cuvil::golden {

// Logits of every position of one sequence, from the step graph and the file's own weights.
absl::StatusOr<Logits> Interpret(const engine::Model& model, const std::vector<int32_t>& tokens);

double LargestDifference(const Logits& a, const Logits& b);

}  // namespace cuvil::golden
