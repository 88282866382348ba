#include "compiler/driver/compile_kernels.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "compiler/driver/cache.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/text.h"

namespace cuvil::driver {
namespace {

using Objects = std::vector<std::pair<std::string, std::vector<uint8_t>>>;  // symbol, ELF

Json KernelsKey(absl::Span<const kernel::Kernel> kernels, const emit::Target& target) {
  std::string text;
  for (const kernel::Kernel& k : kernels) text += kernel::Print(k);
  Json c = Json::object();
  c["kernels"] = Sha256Hex(text);
  c["target"] = target.name;
  c["features"] = target.llvm_features;
  c["llvm"] = emit::LlvmBuildId();
  return c;
}

absl::StatusOr<Objects> EmitAll(absl::Span<const kernel::Kernel> kernels,
                                const CompileKernelsOptions& options) {
  Objects objects(kernels.size());
  std::vector<absl::Status> statuses(kernels.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < kernels.size();) {
      auto emitted = emit::EmitObject(kernels[i], options.target);
      statuses[i] = emitted.status();
      if (emitted.ok()) objects[i] = {kernels[i].name, std::move(emitted->object)};
    }
  };
  std::vector<std::thread> threads;
  const size_t count = std::min<size_t>(options.threads, kernels.size());
  for (size_t t = 1; t < count; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : statuses) RETURN_IF_ERROR(s);
  return objects;
}

absl::StatusOr<std::shared_ptr<const emit::CodeImage>> LinkAll(const Objects& objects) {
  std::vector<emit::CodeImage::Object> linked;
  for (const auto& [symbol, bytes] : objects) linked.push_back({symbol, bytes});
  return emit::CodeImage::Link(linked);
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
  auto code = LinkAll(objects);
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
  if (options.cache != nullptr) {
    components = KernelsKey(kernels, options.target);
    key = Sha256Hex(WriteJson(components));
    out.code = LoadCached(key, kernels, *options.cache, out.cache_note);
    if (out.code != nullptr) return out;
  }
  ASSIGN_OR_RETURN(const Objects objects, EmitAll(kernels, options));
  out.emitted = static_cast<int>(kernels.size());
  ASSIGN_OR_RETURN(out.code, LinkAll(objects));
  if (options.cache != nullptr) {
    Artifact artifact;
    artifact.program_json = "{}";  // there is no program, only code
    for (const auto& [symbol, bytes] : objects) artifact.objects.push_back({symbol, bytes});
    artifact.key_components = std::move(components);
    if (const absl::Status s = options.cache->Store(key, artifact); !s.ok()) {
      out.cache_note = std::string(s.message());
    }
  }
  return out;
}

}  // namespace cuvil::driver
