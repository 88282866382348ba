// What this processor and this process may use: instruction sets as acquired, cores as allowed.
#pragma once

#include <string>
#include <vector>

namespace cuvil {

struct CpuFeatures {
  bool avx2 = false;        // AVX2 + FMA + F16C
  bool avx512 = false;      // AVX-512 F, BW, DQ, VL
  bool avx512vnni = false;  // avx512 + VNNI
  bool avx512bf16 = false;
  bool amx = false;  // AMX-INT8 and AMX-BF16, and the kernel granted tile state to this process
  std::string vendor;
  std::string model;
  std::string amx_note;  // why amx is false although the CPU has it; empty otherwise

  // Names of what is present, for people and keys.
  std::vector<std::string> Names() const;
};

// Detects once and asks the kernel for AMX tile state; call first in main, before any thread
// installs a small signal stack. Any thread afterwards.
const CpuFeatures& AcquireCpuFeatures();

// min(affinity mask, floor(cgroup CPU quota)), at least 1.
int UsableCores();

}  // namespace cuvil
