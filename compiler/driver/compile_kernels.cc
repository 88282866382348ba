#include "compiler/driver/compile_kernels.h"

#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "compiler/driver/cache.h"
#include "compiler/driver/emit_kernels.h"
#include "compiler/emit/module/module.h"
#include "compiler/kernel/text.h"

namespace cuvil::driver {
namespace {

Json KernelsKey(absl::Span<const kernel::Kernel> kernels, const emit::Target& target) {
  std::string text;
  for (const kernel::Kernel& k : kernels) text += kernel::Print(k);
  Json c = Json::object();
  c["kernels"] = Sha256Hex(text);
  c["target"] = target.name;
  c["features"] = target.llvm_features;
  AddCompilerIds(c);
  return c;
}

// Null when the cache has no usable entry; `note` then says why, unless there simply is none.
std::shared_ptr<const emit::CodeImage> LoadCached(const std::string& key,
                                                  absl::Span<const kernel::Kernel> kernels,
                                                  ArtifactCache& cache, std::string& note) {
  auto loaded = cache.Load(key);
  if (!loaded.ok()) {
    note = std::string(loaded.status().message());
    return nullptr;
  }
  if (!loaded->has_value()) return nullptr;
  Artifact& artifact = **loaded;
  if (artifact.objects.size() != kernels.size()) return nullptr;
  Objects objects;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (artifact.objects[i].symbol != kernels[i].name) return nullptr;
    objects.emplace_back(kernels[i].name, std::move(artifact.objects[i].object));
  }
  auto code = LinkObjects(objects);
  if (code.ok()) return *std::move(code);
  note = std::string(code.status().message());
  return nullptr;
}

}  // namespace

absl::StatusOr<CompiledKernels> CompileKernels(absl::Span<const kernel::Kernel> kernels,
                                               const CompileKernelsOptions& options) {
  CompiledKernels out;
  Json components;
  std::string key;
  const bool use_cache = options.cache != nullptr && CompilerIdsKnown();
  if (use_cache) {
    components = KernelsKey(kernels, options.target);
    key = Sha256Hex(WriteJson(components));
    out.code = LoadCached(key, kernels, *options.cache, out.cache_note);
    if (out.code != nullptr) return out;
  }
  ASSIGN_OR_RETURN(std::vector<emit::Emitted> emitted,
                   EmitKernels(kernels, options.target, options.threads));
  out.emitted = static_cast<int>(kernels.size());
  Objects objects;
  for (size_t i = 0; i < kernels.size(); ++i) {
    objects.emplace_back(kernels[i].name, std::move(emitted[i].object));
  }
  ASSIGN_OR_RETURN(out.code, LinkObjects(objects));
  if (const absl::Status s = emit::CheckModuleIds(); use_cache && !s.ok()) {
    out.cache_note = std::string(s.message());
  } else if (use_cache) {
    Artifact artifact;
    artifact.program_json = "{}";  // there is no program, only code
    for (const auto& [symbol, bytes] : objects) artifact.objects.push_back({symbol, bytes});
    artifact.key_components = std::move(components);
    if (const absl::Status stored = options.cache->Store(key, artifact); !stored.ok()) {
      out.cache_note = std::string(stored.message());
    }
  }
  return out;
}

}  // namespace cuvil::driver
