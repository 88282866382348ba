// cuvil doctor: what this machine offers, what Cuvil makes of it, and what is missing.
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/output.h"
#include "compiler/driver/cache.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/emit/module/module.h"
#include "runtime/arena.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  cuvil doctor\n"
    "  cuvil doctor --json";

struct Options {
  CommonOptions common;
  bool json = false;
};

// Whether a touched region really becomes huge pages: "always" in /sys is no proof.
int64_t HugePageBytesGranted() {
  constexpr int64_t kBytes = 4 * runtime::kHugePageBytes;
  auto arena = runtime::Arena::Map(kBytes);
  if (!arena.ok()) return 0;
  for (int64_t i = 0; i < kBytes; i += 4096) arena->data()[i] = 1;
  return arena->HugePageBytes();
}

Json CacheJson(const CommonOptions& common) {
  const std::string dir = engine::DefaultCacheDir(common.cache_dir);
  Json json = {{"dir", dir}, {"usable", false}, {"entries", 0}, {"bytes", 0}, {"note", ""}};
  if (dir.empty()) {
    json["note"] = "there is no HOME; pass --cache-dir DIR";
    return json;
  }
  const auto cache = driver::ArtifactCache::Open(dir);
  const auto entries = cache.ok() ? (*cache)->List() : cache.status();
  if (!entries.ok()) {
    json["note"] = std::string(entries.status().message());
    return json;
  }
  int64_t bytes = 0;
  for (const driver::CacheEntry& e : *entries) bytes += e.bytes;
  json["usable"] = true;
  json["entries"] = entries->size();
  json["bytes"] = bytes;
  return json;
}

Json Report(const CommonOptions& common) {
  const CpuFeatures& cpu = AcquireCpuFeatures();
  Json json = {{"cpu", cpu.model}, {"vendor", cpu.vendor}, {"features", cpu.Names()}};
  const auto target = emit::BestTarget(cpu);
  json["target"] = target.ok() ? target->name : "";
  json["target_note"] = target.ok() ? "" : std::string(target.status().message());
  json["limits"] = LimitsJson(ReadMachineLimits());
  json["limits"]["huge_page_bytes_granted_of_8_mib"] = HugePageBytesGranted();
  json["llvm"] = emit::LlvmBuildId();
  json["emitter"] = {{"path", emit::ModulePath()}, {"present", !emit::ModuleBuildId().empty()}};
  json["cache"] = CacheJson(common);
  const auto model = ModelPath(common);
  const bool there = model.ok() && access(model->c_str(), R_OK) == 0;
  json["model"] = {{"path", model.ok() ? *model : DefaultModelPath()}, {"present", there}};
  return json;
}

std::string Joined(const Json& names) {
  std::string text;
  for (const Json& name : names)
    absl::StrAppend(&text, text.empty() ? "" : ", ", name.get<std::string>());
  return text.empty() ? "none" : text;
}

std::string ReportText(const Json& r) {
  const Json &limits = r["limits"], &cache = r["cache"], &model = r["model"];
  const auto mib = [](const Json& bytes) { return bytes.get<int64_t>() >> 20; };
  std::string text = absl::StrCat("CPU         ", r["cpu"].get<std::string>(), "\n");
  absl::StrAppend(&text, "features    ", Joined(r["features"]), "\n");
  if (const auto note = limits["amx_note"].get<std::string>(); !note.empty()) {
    absl::StrAppend(&text, "            AMX is not used: ", note, "\n");
  }
  absl::StrAppend(&text, "target      ", r["target"].get<std::string>(),
                  r["target_note"].get<std::string>(), ", ", r["llvm"].get<std::string>(), "\n");
  absl::StrAppend(&text, "emitter     ", r["emitter"]["path"].get<std::string>(),
                  r["emitter"]["present"].get<bool>() ? "\n" : ": NOT THERE, nothing compiles\n");
  absl::StrAppend(&text, "cores       ", limits["cores"].get<int64_t>(), " usable\n");
  absl::StrAppend(&text, "memory      ", mib(limits["memory_bytes"]), " MiB, ",
                  mib(limits["memory_available_bytes"]), " MiB available");
  if (limits["memory_limit_bytes"].get<int64_t>() > 0) {
    absl::StrAppend(&text, ", limited to ", mib(limits["memory_limit_bytes"]), " MiB");
  }
  const auto huge = limits["huge_pages"].get<std::string>();
  absl::StrAppend(&text, "\nhuge pages  ", huge.empty() ? "not offered" : huge, ", ",
                  mib(limits["huge_page_bytes_granted_of_8_mib"]), " of 8 MiB granted\n");
  absl::StrAppend(&text, "cache       ", cache["dir"].get<std::string>(), ": ");
  if (cache["usable"].get<bool>()) {
    absl::StrAppend(&text, cache["entries"].get<int64_t>(), " entries, ", mib(cache["bytes"]),
                    " MiB\n");
  } else {
    absl::StrAppend(&text, "NOT USABLE, every start compiles: ", cache["note"].get<std::string>(),
                    "\n");
  }
  absl::StrAppend(&text, "model       ", model["path"].get<std::string>(),
                  model["present"].get<bool>()
                      ? "\n"
                      : ": NOT THERE; run ./dev model to fetch it, or pass --model FILE\n");
  return text;
}

absl::StatusOr<int> Doctor(const Options& o) {
  const Json report = Report(o.common);
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(report));
  } else {
    RETURN_IF_ERROR(WriteOut(std::string_view(ReportText(report))));
  }
  return kDone;
}

}  // namespace

void AddDoctor(CLI::App& app, Handler* chosen) {
  CLI::App* sub =
      Subcommand(app, "doctor", "Show what this machine offers and what is missing", kFooter);
  auto o = std::make_shared<Options>();
  AddModelOption(sub, &o->common);
  sub->add_option("--cache-dir", o->common.cache_dir, "Folder of compiled kernels")
      ->type_name("DIR");
  sub->add_flag("--json", o->json, "One JSON object instead of text");
  sub->callback([o, chosen] { *chosen = [o] { return Doctor(*o); }; });
}

}  // namespace cuvil::cli
