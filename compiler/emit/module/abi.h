// What the program and its module must agree on. CUVIL_MODULE_ABI is a digest of the headers that
// both are compiled from and of the kind of build: a struct that differs would be read wrongly.
#pragma once

namespace cuvil::emit {

inline constexpr char kModuleAbi[] = CUVIL_MODULE_ABI;

// Exported by the module as cuvil_module_identity.
struct ModuleIdentity {
  const char* abi;
  const void* in_llvm;  // an address inside LLVM's library
};
inline constexpr char kModuleIdentity[] = "cuvil_module_identity";

}  // namespace cuvil::emit

#define CUVIL_MODULE_EXPORT extern "C" __attribute__((visibility("default")))
