// The module's side of module.h.
#include "base/module_export.h"
#include "server/grpc/module/module.h"

namespace cuvil::server::grpc {

CUVIL_MODULE_EXPORT const Entry cuvil_grpc_entry{&Methods, &Server::Start};

}  // namespace cuvil::server::grpc
