#include "server/grpc/module/module.h"

#include "base/module.h"
#include "modules/cuvil-grpc.h"

namespace cuvil::server::grpc {

absl::StatusOr<const Entry*> LoadModule() {
  static auto* const module = new Module({.file = "libcuvil-grpc.so",
                                          .what = "the gRPC door",
                                          .wanted = "an address for gRPC is configured",
                                          .abi = CUVIL_MODULE_ABI});
  ASSIGN_OR_RETURN(const void* const entry, module->Object(kEntry));
  return static_cast<const Entry*>(entry);
}

}  // namespace cuvil::server::grpc
