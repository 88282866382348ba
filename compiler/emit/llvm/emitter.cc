// The program's side of emit.h: finds the emitter in the module.
#include "compiler/emit/llvm/emit.h"
#include "compiler/emit/module/module.h"

namespace cuvil::emit {

absl::StatusOr<Emitted> EmitObject(const kernel::Kernel& kernel, const Target& target,
                                   const EmitOptions& options) {
  ASSIGN_OR_RETURN(const void* const emitter, ModuleObject(kEmitter));
  return static_cast<const Emitter*>(emitter)->emit_object(kernel, target, options);
}

}  // namespace cuvil::emit
