#include "compiler/plan/numerics.h"

namespace cuvil::plan {

absl::StatusOr<Numerics> ParseNumerics(std::string_view name) {
  if (name == "exact") return Numerics::kExact;
  if (name == "fast") return Numerics::kFast;
  if (name == "deterministic") return Numerics::kDeterministic;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown numerics '", Sv(name), "'; choose exact, fast or deterministic"));
}

std::string_view NumericsName(Numerics n) {
  static constexpr std::string_view kNames[] = {"exact", "fast", "deterministic"};
  return kNames[static_cast<int>(n)];
}

}  // namespace cuvil::plan
