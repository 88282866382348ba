#include "compiler/emit/module/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/build_id.h"
#include "compiler/emit/module/abi.h"

namespace cuvil::emit {
namespace {

constexpr char kFile[] = "lib/libcuvil-llvm.so";

// The folder that holds bin/ and lib/; empty when the system does not say where this program is.
std::string Prefix() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || n == sizeof path) return "";
  std::string prefix(path, static_cast<size_t>(n));
  for (int level = 0; level < 2; ++level) prefix.resize(std::min(prefix.rfind('/'), prefix.size()));
  return prefix;
}

struct Loaded {
  void* handle = nullptr;
  absl::Status status;  // why there is no handle
  absl::Status ids;     // CheckModuleIds
};

absl::Status CheckIds(const ModuleIdentity& identity) {
  if (BuildIdAt(&identity) != ModuleBuildId()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", ModulePath(),
                     "' was replaced while this program ran, so compiled kernels are not kept; "
                     "start it again"));
  }
  const std::string llvm = BuildIdAt(identity.in_llvm);
  if (llvm.empty() || llvm != CUVIL_LLVM_BUILD_ID) {
    return absl::FailedPreconditionError(absl::StrCat(
        "LLVM's library has build id '", llvm, "' and this program was built with '",
        CUVIL_LLVM_BUILD_ID, "', so compiled kernels are not kept; build Cuvil again"));
  }
  return absl::OkStatus();
}

Loaded Load() {
  Loaded loaded;
  const std::string& path = ModulePath();
  if (access(path.c_str(), F_OK) != 0) {
    loaded.status = absl::FailedPreconditionError(
        absl::StrCat("the code generator '", path,
                     "' is missing, and something has to be compiled; install lib/ beside bin/"));
    return loaded;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    loaded.status = absl::FailedPreconditionError(
        absl::StrCat("the code generator cannot be loaded: ", dlerror()));
    return loaded;
  }
  const auto* identity = static_cast<const ModuleIdentity*>(dlsym(handle, kModuleIdentity));
  if (identity == nullptr || std::strcmp(identity->abi, kModuleAbi) != 0) {
    loaded.status = absl::FailedPreconditionError(absl::StrCat(
        "the code generator '", path,
        "' is of another build than this program; install bin/ and lib/ of one build"));
    return loaded;
  }
  loaded.handle = handle;
  loaded.ids = CheckIds(*identity);
  return loaded;
}

std::atomic<const Loaded*> g_loaded{nullptr};

const Loaded& TheModule() {
  static const Loaded* const loaded = [] {
    const auto* made = new Loaded(Load());  // never unloaded: code of it may run until the end
    g_loaded.store(made, std::memory_order_release);
    return made;
  }();
  return *loaded;
}

}  // namespace

const std::string& ModulePath() {
  static const std::string path = absl::StrCat(Prefix(), "/", kFile);
  return path;
}

const std::string& ModuleBuildId() {
  static const std::string id = BuildIdOfFile(ModulePath());
  return id;
}

const std::string& LlvmBuildId() {
  static const std::string id = "LLVM " CUVIL_LLVM_VERSION " " CUVIL_LLVM_BUILD_ID;
  return id;
}

absl::StatusOr<const void*> ModuleObject(const char* name) {
  const Loaded& module = TheModule();
  if (module.handle == nullptr) return module.status;
  const void* object = dlsym(module.handle, name);
  CUVIL_CHECK(object != nullptr, absl::StrCat("a module of this build exports ", name));
  return object;
}

absl::Status CheckModuleIds() {
  const Loaded* loaded = g_loaded.load(std::memory_order_acquire);
  return loaded == nullptr ? absl::OkStatus() : loaded->ids;
}

}  // namespace cuvil::emit
