// A shared object of ours that a program loads when it first needs it: lib/<file> beside the
// program's bin/, never from a search path or a variable. What only some commands need, and all
// would pay for at each start, lives in one; cuvil_module in cmake/Cuvil.cmake builds it.
//
// A module and its program are of one build: both have a digest of what they share compiled in.
// Any thread; loaded at most once, never unloaded, because code of it may run until the end.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/status.h"

namespace cuvil {

struct ModuleSpec {
  const char* file = "";    // "libcuvil-x.so"
  const char* what = "";    // for sentences: "the code generator"
  const char* wanted = "";  // and why it is loaded: "something has to be compiled"
  const char* abi = "";     // CUVIL_MODULE_ABI of "modules/cuvil-x.h"
};

class Module {
 public:
  explicit Module(const ModuleSpec& spec);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Where it has to be, made from the place of the running program.
  const std::string& path() const { return path_; }
  bool loaded() const { return loaded_.load(std::memory_order_acquire); }

  // Address of an object that the module exports, loading the module first. FailedPrecondition, one
  // sentence, when it is missing, cannot be loaded or comes from another build than this program.
  absl::StatusOr<const void*> Object(const char* name);

 private:
  absl::Status Load();

  const ModuleSpec spec_;
  const std::string path_;
  std::once_flag once_;
  // Written once.
  void* handle_ = nullptr;
  absl::Status status_;  // why there is no handle
  std::atomic<bool> loaded_{false};
};

}  // namespace cuvil
