#include "server/engine/load_report.h"

namespace cuvil::server {

void ReportCompiled(EngineObserver* observer, const std::string& name, const engine::Model& model) {
  if (observer == nullptr) return;
  const engine::LoadTiming& timing = model.timing();
  observer->OnLoadPhase(name, "open", timing.open_s);
  observer->OnLoadPhase(name, timing.tier0 ? "tier0" : "compile", timing.compile_s);
}

void ReportRest(EngineObserver* observer, const std::string& name, const engine::Model& model) {
  if (!model.timing().tier0) return;
  const engine::ModelCode::End end = model.code().Finish();
  if (observer == nullptr) return;
  if (!end.status.ok()) {
    observer->OnCompileFailed(name, std::string(end.status.message()));
    return;
  }
  observer->OnLoadPhase(name, "compile", end.seconds);
  observer->OnLoadPhase(name, "swap", model.timing().open_s + end.seconds);
}

}  // namespace cuvil::server
