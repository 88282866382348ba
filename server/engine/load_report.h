// What an observer is told of the code of a model that was loaded. Any thread; `observer` may be
// null.
#pragma once

#include <string>

#include "engine/model.h"
#include "server/api/observer.h"

namespace cuvil::server {

// The phases until it could answer. Serving first, the whole compilation is reported when it ends.
void ReportCompiled(EngineObserver* observer, const std::string& name, const engine::Model& model);

// Waits until the code of a model that answered first is whole and written, and tells how that
// ended. Nothing for a model whose code was whole when it was loaded.
void ReportRest(EngineObserver* observer, const std::string& name, const engine::Model& model);

}  // namespace cuvil::server
