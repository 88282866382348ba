#include "compiler/emit/llvm/target.h"

namespace cuvil::emit {
namespace {

constexpr char kAvx2[] = "+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe";

}  // namespace

const std::vector<Target>& AllTargets() {
  static const auto* targets = new std::vector<Target>{
      {"cpu:avx512vnni",
       std::string(kAvx2) + ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+avx512vnni", 16, 32,
       true},
      {"cpu:avx512", std::string(kAvx2) + ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd", 16,
       32, false},
      {"cpu:avx2", kAvx2, 8, 16, false},
  };
  return *targets;
}

absl::StatusOr<Target> FindTarget(std::string_view name) {
  std::string known;
  for (const Target& t : AllTargets()) {
    if (t.name == name) return t;
    absl::StrAppend(&known, known.empty() ? "" : ", ", t.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown target '", Sv(name), "'; this build generates ", known));
}

bool Runs(const Target& target, const CpuFeatures& f) {
  if (target.name == "cpu:avx512vnni") return f.avx512vnni;
  if (target.name == "cpu:avx512") return f.avx512;
  return f.avx2;
}

absl::StatusOr<Target> BestTarget(const CpuFeatures& features) {
  for (const Target& t : AllTargets()) {
    if (Runs(t, features)) return t;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this CPU (", features.model, ") has no AVX2, FMA and F16C; Cuvil needs at least those"));
}

}  // namespace cuvil::emit
