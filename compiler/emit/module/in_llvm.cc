// In the module: where LLVM's library is, so that the program can ask for its build id.
#include "base/module_export.h"
#include "llvm/Support/Debug.h"

namespace cuvil::emit {

// Of a variable that LLVM's library defines; a function's address might be an entry of our own.
CUVIL_MODULE_EXPORT const void* const cuvil_in_llvm = &llvm::DebugFlag;

}  // namespace cuvil::emit
