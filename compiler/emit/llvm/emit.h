// Kernel IR to x86-64 machine code through LLVM, which lives in a shared module that the first call
// loads (compiler/emit/module). The only folder (with emit/inspect) that sees LLVM headers. Any
// thread: every call has its own LLVM context. The pass list is fixed and small: the templates
// decide the schedule, so vectoriser, SLP and unroller stay off.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/emit/llvm/kernel_fn.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/kernel/kir.h"

namespace cuvil::emit {

struct EmitOptions {
  bool want_ir = false;  // fill Emitted::llvm_ir
};

struct Emitted {
  std::vector<uint8_t> object;  // relocatable ELF with one global function named like the kernel
  int ir_ops = 0;               // kernel IR ops
  double seconds = 0;           // wall time of this call
  std::string llvm_ir;          // optimised LLVM IR when asked
};

// Same kernel and target: same bytes. Errors of ModuleObject (compiler/emit/module) when there is
// no module to load.
absl::StatusOr<Emitted> EmitObject(const kernel::Kernel& kernel, const Target& target,
                                   const EmitOptions& options = {});

// What the module exports under kEmitter.
struct Emitter {
  absl::StatusOr<Emitted> (*emit_object)(const kernel::Kernel&, const Target&, const EmitOptions&);
};
inline constexpr char kEmitter[] = "cuvil_emitter";

}  // namespace cuvil::emit
