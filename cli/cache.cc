// cuvil cache: looks after the folder of compiled kernels.
#include "compiler/driver/cache.h"

#include <time.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/strip.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "An entry is found by what it was compiled from: the model's graph (not its weights), the "
    "target, the\n"
    "options and the compiler. Damaged entries are removed and compiled anew, never used.\n\n"
    "Examples:\n"
    "  cuvil cache ls\n"
    "  cuvil cache verify                  check every byte\n"
    "  cuvil cache gc                      remove what exceeds the limits\n"
    "  cuvil cache explain-key 3fa1 9c04   why two entries are not one (keys may be shortened)";

struct Options {
  std::string dir, key_a, key_b;
  bool json = false;
};

struct Opened {
  std::string dir;
  std::unique_ptr<driver::ArtifactCache> cache;
};

absl::StatusOr<Opened> Open(const Options& o) {
  Opened opened{engine::DefaultCacheDir(o.dir), nullptr};
  if (opened.dir.empty()) {
    return absl::FailedPreconditionError(
        "there is no cache folder without HOME; pass --cache-dir DIR");
  }
  auto cache = driver::ArtifactCache::Open(opened.dir);
  if (!cache.ok()) {
    // The cache speaks to those who can do without; here it is all there is.
    const absl::string_view why =
        absl::StripSuffix(cache.status().message(), "; running without a cache");
    return absl::Status(cache.status().code(), absl::StrCat(why, "; pass another --cache-dir"));
  }
  opened.cache = *std::move(cache);
  return opened;
}

absl::StatusOr<int> Print(const Options& o, const Json& json, const std::string& text) {
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(json));
  } else {
    RETURN_IF_ERROR(WriteOut(std::string_view(text)));
  }
  return kDone;
}

std::string DateOf(int64_t ns) {
  const time_t seconds = ns / 1'000'000'000;
  tm parts;
  char text[32] = "?";
  if (localtime_r(&seconds, &parts) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

absl::StatusOr<int> List(const Options& o) {
  ASSIGN_OR_RETURN(const Opened opened, Open(o));
  ASSIGN_OR_RETURN(const std::vector<driver::CacheEntry> entries, opened.cache->List());
  Json json = {{"dir", opened.dir}, {"entries", Json::array()}};
  std::string text;
  int64_t bytes = 0;
  for (const driver::CacheEntry& e : entries) {
    json["entries"].push_back({{"key", e.key}, {"bytes", e.bytes}, {"used_ns", e.used_ns}});
    absl::StrAppendFormat(&text, "%s %12d bytes, used %s\n", e.key, e.bytes, DateOf(e.used_ns));
    bytes += e.bytes;
  }
  absl::StrAppendFormat(&text, "%d entries, %d bytes in %s\n", entries.size(), bytes, opened.dir);
  return Print(o, json, text);
}

absl::StatusOr<int> Verify(const Options& o) {
  ASSIGN_OR_RETURN(const Opened opened, Open(o));
  ASSIGN_OR_RETURN(const driver::VerifyReport report, opened.cache->Verify());
  std::string text;
  for (const std::string& why : report.dropped) absl::StrAppend(&text, "removed: ", why, "\n");
  absl::StrAppendFormat(&text, "%d entries are good, %d were removed\n", report.good,
                        report.dropped.size());
  return Print(o, {{"good", report.good}, {"dropped", report.dropped}}, text);
}

absl::StatusOr<int> Gc(const Options& o) {
  ASSIGN_OR_RETURN(const Opened opened, Open(o));
  ASSIGN_OR_RETURN(const driver::GcReport report, opened.cache->Gc());
  return Print(
      o, {{"entries", report.entries}, {"bytes", report.bytes}, {"stale", report.stale}},
      absl::StrFormat("removed %d entries (%d bytes) and %d leftovers of writers that died\n",
                      report.entries, report.bytes, report.stale));
}

// The one key that starts so.
absl::StatusOr<std::string> FullKey(const std::vector<driver::CacheEntry>& entries,
                                    const std::string& prefix) {
  std::string found;
  for (const driver::CacheEntry& e : entries) {
    if (e.key.compare(0, prefix.size(), prefix) != 0) continue;
    if (!found.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("several entries start with '", prefix, "'; give more of the key"));
    }
    found = e.key;
  }
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no entry starts with '", prefix, "'; cuvil cache ls lists them"));
  }
  return found;
}

absl::StatusOr<int> ExplainKeys(const Options& o) {
  ASSIGN_OR_RETURN(const Opened opened, Open(o));
  ASSIGN_OR_RETURN(const std::vector<driver::CacheEntry> entries, opened.cache->List());
  ASSIGN_OR_RETURN(const std::string a, FullKey(entries, o.key_a));
  ASSIGN_OR_RETURN(const std::string b, FullKey(entries, o.key_b));
  ASSIGN_OR_RETURN(const std::string why, opened.cache->Explain(a, b));
  return Print(o, {{"a", a}, {"b", b}, {"difference", why}}, why + "\n");
}

using Work = absl::StatusOr<int> (*)(const Options&);

CLI::App* AddWork(CLI::App* cache, const char* name, const char* what, Work work,
                  const std::shared_ptr<Options>& o, Handler* chosen) {
  CLI::App* sub = cache->add_subcommand(name, what);
  sub->add_option("--cache-dir", o->dir,
                  "The folder; default: $CUVIL_CACHE_DIR, else ~/.cache/cuvil")
      ->type_name("DIR");
  sub->add_flag("--json", o->json, "One JSON object instead of text");
  sub->callback([o, work, chosen] { *chosen = [o, work] { return work(*o); }; });
  return sub;
}

}  // namespace

void AddCache(CLI::App& app, Handler* chosen) {
  CLI::App* cache = Subcommand(app, "cache", "Look after the folder of compiled kernels", kFooter);
  cache->require_subcommand(1, 1);
  auto o = std::make_shared<Options>();
  AddWork(cache, "ls", "List the entries, least recently used first", List, o, chosen);
  AddWork(cache, "verify", "Read every entry and remove the damaged ones", Verify, o, chosen);
  AddWork(cache, "gc", "Remove what exceeds the limits, and leftovers", Gc, o, chosen);
  CLI::App* explain = AddWork(cache, "explain-key", "Say why two entries have different keys",
                              ExplainKeys, o, chosen);
  explain->add_option("a", o->key_a, "One key")->type_name("KEY")->required();
  explain->add_option("b", o->key_b, "The other key")->type_name("KEY")->required();
}

}  // namespace cuvil::cli
