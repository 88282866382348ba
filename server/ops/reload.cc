#include "server/ops/reload.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_join.h"
#include "server/ops/options.h"

namespace cuvil::ops {
namespace {

std::map<std::string, KeyEntry> ByHash(const std::vector<KeyEntry>& keys) {
  std::map<std::string, KeyEntry> found;
  for (const KeyEntry& key : keys) found.emplace(key.hash, key);
  return found;
}

// Models share their steps among tenants by these; they are set when the models are made.
std::map<std::string, double> Weights(const std::vector<KeyEntry>& keys) {
  std::map<std::string, double> weights;
  for (const KeyEntry& key : keys) weights[key.tenant] = key.weight;
  return weights;
}

std::string Sentence(const std::vector<KeyEntry>& running, const std::vector<KeyEntry>& read) {
  const std::map<std::string, KeyEntry> before = ByHash(running), now = ByHash(read);
  int added = 0, changed = 0, kept = 0;
  for (const auto& [hash, key] : now) {
    const auto found = before.find(hash);
    if (found == before.end()) {
      ++added;
      continue;
    }
    ++kept;
    if (found->second.tenant != key.tenant || found->second.admin != key.admin) ++changed;
  }
  return absl::StrCat(now.size(), " API keys now: ", added, " added, ",
                      before.size() - static_cast<size_t>(kept), " removed, ", changed,
                      " with other rights");
}

std::string Waiting(const Config& running, const Config& read) {
  std::vector<std::string> names;
  for (const Option& option : Options()) {
    if (option.kind == OptionKind::kKeys || option.name == "api_keys_file") continue;
    if (OptionText(option, running, false) == OptionText(option, read, false)) continue;
    names.emplace_back(option.name);
  }
  const std::map<std::string, double> before = Weights(running.api_keys);
  for (const auto& [tenant, weight] : Weights(read.api_keys)) {
    const auto found = before.find(tenant);
    // A tenant that was not there at the start has the weight 1.
    if (weight == (found == before.end() ? 1 : found->second)) continue;
    names.push_back("weights of tenants");
    break;
  }
  if (names.empty()) return "";
  return absl::StrCat("read again, but counts only after a restart: ", absl::StrJoin(names, ", "));
}

}  // namespace

absl::StatusOr<Reload> PlanReload(const Config& running, const Config& read) {
  if (!running.api_keys.empty() && read.api_keys.empty()) {
    return absl::FailedPreconditionError(
        "no API key is left, which would let everyone in; the old keys stay. Restart the server if "
        "that is meant");
  }
  Reload reload;
  ASSIGN_OR_RETURN(reload.keys, KeySet::Create(read.api_keys));
  reload.changed = Sentence(running.api_keys, read.api_keys);
  reload.waits = Waiting(running, read);
  return reload;
}

}  // namespace cuvil::ops
