#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace cuvil {
namespace {

// The folder that holds bin/ and lib/; empty when the system does not say where this program is.
std::string Prefix() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || n == sizeof path) return "";
  std::string prefix(path, static_cast<size_t>(n));
  for (int level = 0; level < 2; ++level) prefix.resize(std::min(prefix.rfind('/'), prefix.size()));
  return prefix;
}

}  // namespace

Module::Module(const ModuleSpec& spec)
    : spec_(spec), path_(absl::StrCat(Prefix(), "/lib/", spec.file)) {}

absl::Status Module::Load() {
  if (access(path_.c_str(), F_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(spec_.what, " '", path_, "' is missing, and ",
                                                      spec_.wanted, "; install lib/ beside bin/"));
  }
  void* handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(spec_.what, " cannot be loaded: ", dlerror()));
  }
  const auto* abi = static_cast<const char*>(dlsym(handle, "cuvil_module_abi"));
  if (abi == nullptr || std::strcmp(abi, spec_.abi) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        spec_.what, " '", path_,
        "' is of another build than this program; install bin/ and lib/ of one build"));
  }
  handle_ = handle;
  loaded_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<const void*> Module::Object(const char* name) {
  std::call_once(once_, [this] { status_ = Load(); });
  RETURN_IF_ERROR(status_);
  const void* object = dlsym(handle_, name);
  CUVIL_CHECK(object != nullptr, absl::StrCat("a module of this build exports ", name));
  return object;
}

}  // namespace cuvil
