// The module's side of abi.h.
#include "compiler/emit/module/abi.h"
#include "llvm/Support/Debug.h"

namespace cuvil::emit {

// A variable that LLVM's library defines; a function's address might be an entry of our own.
CUVIL_MODULE_EXPORT const ModuleIdentity cuvil_module_identity{kModuleAbi, &llvm::DebugFlag};

}  // namespace cuvil::emit
