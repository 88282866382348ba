// Kernel IR to x86-64 machine code through LLVM. The only folder (with emit/inspect) that sees LLVM
// headers. Any thread: every call has its own LLVM context. The pass list is fixed and small: the
// templates decide the schedule, so vectoriser, SLP and unroller stay off.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/kernel/kir.h"

namespace cuvil::emit {

// void kernel(buffers, scalars, scratch, tile, first): the machine-level signature of every kernel.
// `first` is 1 on the worker's first tile of a launch, else 0.
using KernelFn = void (*)(uint8_t* const* buffers, const int64_t* scalars, uint8_t* scratch,
                          int64_t tile, int64_t first);

struct EmitOptions {
  bool want_ir = false;  // fill Emitted::llvm_ir
};

struct Emitted {
  std::vector<uint8_t> object;  // relocatable ELF with one global function named like the kernel
  int ir_ops = 0;               // kernel IR ops
  double seconds = 0;           // wall time of this call
  std::string llvm_ir;          // optimised LLVM IR when asked
};

// Same kernel and target: same bytes.
absl::StatusOr<Emitted> EmitObject(const kernel::Kernel& kernel, const Target& target,
                                   const EmitOptions& options = {});

// "LLVM 19.1.7": part of cache keys.
std::string LlvmBuildId();

}  // namespace cuvil::emit
