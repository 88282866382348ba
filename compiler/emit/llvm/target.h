// A CPU code-generation target: which instructions may be used and what that means for templates.
// Plain data; the same name always means the same features, so that it can be part of a cache key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/status.h"

namespace cuvil::emit {

struct Target {
  std::string name;           // cpu:avx2, cpu:avx512, cpu:avx512vnni
  std::string llvm_features;  // "+avx2,+fma,..."
  int lanes = 8;              // f32 lanes of one register
  int registers = 16;         // vector registers
  bool vnni = false;          // u8 x s8 dot products in one instruction
};

// Every target this build can generate, best first.
const std::vector<Target>& AllTargets();

// The target of that name; an error lists the known ones.
absl::StatusOr<Target> FindTarget(std::string_view name);

// The best target these features allow; an error when the CPU lacks AVX2.
absl::StatusOr<Target> BestTarget(const CpuFeatures& features);

// Whether code for `target` runs here.
bool Runs(const Target& target, const CpuFeatures& features);

}  // namespace cuvil::emit
