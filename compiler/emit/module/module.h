// The code generator's shared module, lib/libcuvil-llvm.so beside the program's bin/. It holds
// everything that needs LLVM and is loaded when something is first compiled or disassembled: a
// start that finds its program in the cache never pays for LLVM's relocations.
//
// What goes into cache keys is known without loading: the module's build id is read from its file,
// LLVM's was recorded when this program was built. Any thread; loaded at most once, never unloaded.
#pragma once

#include <string>

#include "base/status.h"

namespace cuvil::emit {

// Where the module has to be, made from the place of the running program.
const std::string& ModulePath();

// Build id of the module's file as it was at the first call. Empty when there is no such file.
const std::string& ModuleBuildId();

// "LLVM 19.1.7 <build id of its library>", as recorded when this program was built.
const std::string& LlvmBuildId();

// Address of an object that the module exports, loading the module first. FailedPrecondition, one
// sentence, when it is missing, cannot be loaded or comes from another build than this program.
absl::StatusOr<const void*> ModuleObject(const char* name);

// Whether the module and the LLVM that were loaded are those of the two ids above; OK too while
// nothing is loaded. FailedPrecondition: what was emitted may not be kept under a key made of them.
absl::Status CheckModuleIds();

}  // namespace cuvil::emit
