#include "compiler/emit/module/module.h"

#include "base/build_id.h"
#include "base/module.h"
#include "modules/cuvil-llvm.h"

namespace cuvil::emit {
namespace {

Module& TheModule() {
  static auto* const module = new Module({.file = "libcuvil-llvm.so",
                                          .what = "the code generator",
                                          .wanted = "something has to be compiled",
                                          .abi = CUVIL_MODULE_ABI});
  return *module;
}

absl::Status CheckIds() {
  ASSIGN_OR_RETURN(const void* const in_llvm, ModuleObject("cuvil_in_llvm"));
  if (BuildIdAt(in_llvm) != ModuleBuildId()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", ModulePath(),
                     "' was replaced while this program ran, so compiled kernels are not kept; "
                     "start it again"));
  }
  const std::string llvm = BuildIdAt(*static_cast<const void* const*>(in_llvm));
  if (llvm.empty() || llvm != CUVIL_LLVM_BUILD_ID) {
    return absl::FailedPreconditionError(absl::StrCat(
        "LLVM's library has build id '", llvm, "' and this program was built with '",
        CUVIL_LLVM_BUILD_ID, "', so compiled kernels are not kept; build Cuvil again"));
  }
  return absl::OkStatus();
}

}  // namespace

const std::string& ModulePath() { return TheModule().path(); }

const std::string& ModuleBuildId() {
  static const std::string id = BuildIdOfFile(ModulePath());
  return id;
}

const std::string& LlvmBuildId() {
  static const std::string id = "LLVM " CUVIL_LLVM_VERSION " " CUVIL_LLVM_BUILD_ID;
  return id;
}

absl::StatusOr<const void*> ModuleObject(const char* name) { return TheModule().Object(name); }

absl::Status CheckModuleIds() {
  if (!TheModule().loaded()) return absl::OkStatus();
  static const absl::Status status = CheckIds();
  return status;
}

}  // namespace cuvil::emit
