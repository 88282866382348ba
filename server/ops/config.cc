#include "server/ops/config.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "server/ops/config_toml.h"
#include "server/ops/options.h"
#include "server/ops/values.h"

namespace cuvil::ops {
namespace {

absl::Status Wrong(absl::string_view sentence) { return absl::InvalidArgumentError(sentence); }

std::string VariableOf(const Sources& sources, const std::string& name) {
  const auto found = sources.environment.find(name);
  return found == sources.environment.end() ? "" : found->second;
}

absl::Status ApplyFile(const Sources& sources, Effective* effective) {
  std::string path = sources.config_path;
  if (path.empty()) path = VariableOf(sources, "CUVIL_CONFIG");
  if (path.empty()) {
    if (access(sources.default_path.c_str(), F_OK) != 0) return absl::OkStatus();
    path = sources.default_path;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  effective->file = path;
  return ApplyToml(text, path, effective);
}

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> items;
  for (const absl::string_view item : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    items.emplace_back(absl::StripAsciiWhitespace(item));
  }
  return items;
}

absl::Status UnknownVariable(const std::string& name) {
  std::vector<std::string> known;
  for (const Option& option : Options()) known.push_back(option.Variable());
  known.emplace_back("CUVIL_CONFIG");
  known.emplace_back("CUVIL_MODEL");
  std::string hint = DidYouMean(name, known);
  if (hint.empty()) hint = "; cuvil config lists the options; unset it if it is not for the server";
  return Wrong(absl::StrCat("unknown environment variable '", name.substr(0, kNameMax), "'", hint));
}

// An empty variable counts as unset: compose files and units write `NAME=` for "the default".
absl::Status ApplyEnvironment(const Sources& sources, Effective* effective) {
  std::set<std::string> known;
  for (const Option& option : Options()) {
    const std::string name = option.Variable();
    known.insert(name);
    const std::string value = VariableOf(sources, name);
    if (value.empty()) continue;
    const absl::Status set =
        SetOption(option, option.is_list() ? SplitList(value) : std::vector<std::string>{value},
                  &effective->config);
    if (!set.ok()) return Wrong(absl::StrCat(name, ": ", set.message()));
    effective->origins[std::string(option.name)] = {Origin::Layer::kEnvironment, name};
  }
  for (const auto& [name, value] : sources.environment) {
    if (known.contains(name) || IsKnownVariable(name) || IsServiceLink(name, value)) continue;
    return UnknownVariable(name);
  }
  return absl::OkStatus();
}

absl::Status ApplyFlags(const Sources& sources, Effective* effective) {
  std::map<std::string, std::vector<std::string>> texts;
  for (const auto& [name, text] : sources.flags) texts[name].push_back(text);
  for (auto& [name, values] : texts) {
    const Option* option = FindOption(name);
    CUVIL_CHECK(option != nullptr, "flag for an option that does not exist: " + name);
    // The last one counts, as with other programs; a list takes all.
    if (!option->is_list()) values = {values.back()};
    const absl::Status set = SetOption(*option, values, &effective->config);
    if (!set.ok()) return Wrong(absl::StrCat(option->Flag(), ": ", set.message()));
    effective->origins[name] = {Origin::Layer::kFlag, option->Flag()};
  }
  return absl::OkStatus();
}

absl::Status ReadKeysFile(Effective* effective) {
  const std::string& path = effective->config.api_keys_file;
  if (path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<KeyEntry> key = ParseKey(Sv(line));
    if (!key.ok()) return Wrong(absl::StrCat(path, ":", number, ": ", key.status().message()));
    effective->config.api_keys.push_back(*std::move(key));
  }
  return absl::OkStatus();
}

// CUVIL_MODEL is what the other commands read; it serves when no layer lists models.
absl::Status AdoptModelVariable(const Sources& sources, Effective* effective) {
  const std::string path = VariableOf(sources, "CUVIL_MODEL");
  if (path.empty() || !effective->config.models.empty()) return absl::OkStatus();
  absl::StatusOr<ModelEntry> model = ParseModel("./" + path);
  if (!model.ok()) return Wrong(absl::StrCat("CUVIL_MODEL: ", model.status().message()));
  model->path = path;
  effective->config.models.push_back(*std::move(model));
  effective->origins["models"] = {Origin::Layer::kEnvironment, "CUVIL_MODEL"};
  return absl::OkStatus();
}

absl::Status CheckModels(const Config& config) {
  std::vector<std::string> names;
  for (const ModelEntry& model : config.models) {
    if (std::find(names.begin(), names.end(), model.name) != names.end()) {
      return Wrong(absl::StrCat("models: the name '", model.name,
                                "' is given twice; write NAME=PATH to tell them apart"));
    }
    names.push_back(model.name);
    if (model.max_kv_len != 0 && model.kv_sinks >= model.max_kv_len) {
      return Wrong(absl::StrCat("models: '", model.name, "' keeps ", model.kv_sinks, " sinks of ",
                                model.max_kv_len, " positions; kv_sinks must be below max_kv_len"));
    }
  }
  const std::string& chosen = config.default_model;
  if (chosen.empty() || std::find(names.begin(), names.end(), chosen) != names.end()) {
    return absl::OkStatus();
  }
  return Wrong(
      absl::StrCat("default_model: no model is named '", chosen, "'", DidYouMean(chosen, names)));
}

absl::Status CheckAccess(const Config& config, std::vector<std::string>* warnings) {
  if (config.listen.empty() && config.grpc_listen.empty()) {
    return Wrong("listen and grpc_listen are both empty; the server needs an address");
  }
  if (!config.api_keys.empty()) return absl::OkStatus();
  for (const auto& [name, address] :
       {std::pair("listen", config.listen), std::pair("grpc_listen", config.grpc_listen)}) {
    if (address.empty()) continue;
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(address));
    if (IsLoopback(endpoint.host)) continue;
    if (!config.allow_no_auth) {
      return Wrong(absl::StrCat(
          name, " ", address,
          " can be reached from other machines and no API key is set; add api_keys (cuvil config "
          "--new-key makes one), listen on 127.0.0.1, or pass --allow-no-auth"));
    }
    warnings->push_back(absl::StrCat(name, " ", address,
                                     " can be reached from other machines and asks for no key"));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(Effective* effective) {
  const Config& config = effective->config;
  RETURN_IF_ERROR(CheckModels(config));
  RETURN_IF_ERROR(CheckAccess(config, &effective->warnings));
  for (const std::string& origin : config.cors_origins) {
    if (origin != "*") continue;
    effective->warnings.push_back("cors_origins: '*' lets every page a user opens call the API");
  }
  return absl::OkStatus();
}

}  // namespace

std::string Origin::Text() const {
  switch (layer) {
    case Layer::kDefault:
      return "default";
    case Layer::kFile:
      return detail;
    case Layer::kEnvironment:
      return absl::StrCat("env ", detail);
    case Layer::kFlag:
      return absl::StrCat("flag ", detail);
  }
  return "";
}

std::map<std::string, std::string> CuvilEnvironment(const char* const* environment) {
  std::map<std::string, std::string> variables;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (!entry.starts_with("CUVIL_") || equals == entry.npos) continue;
    variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

const Origin& Effective::OriginOf(std::string_view option) const {
  static const Origin kDefault;
  const auto found = origins.find(option);
  return found == origins.end() ? kDefault : found->second;
}

absl::StatusOr<Effective> LoadConfig(const Sources& sources) {
  Effective effective;
  RETURN_IF_ERROR(ApplyFile(sources, &effective));
  RETURN_IF_ERROR(ApplyEnvironment(sources, &effective));
  RETURN_IF_ERROR(ApplyFlags(sources, &effective));
  RETURN_IF_ERROR(ReadKeysFile(&effective));
  RETURN_IF_ERROR(AdoptModelVariable(sources, &effective));
  RETURN_IF_ERROR(CheckTogether(&effective));
  return effective;
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("takes HOST:PORT such as 127.0.0.1:8000 or [::1]:8000, not '", Sv(text), "'"));
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return wrong;
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find_first_of("[]:/ ") != host.npos)) return wrong;
  const absl::StatusOr<int64_t> port = ParseCount(text.substr(colon + 1));
  if (!port.ok() || *port < 0 || *port > 65535) return wrong;
  return Endpoint{std::string(host), static_cast<int>(*port)};
}

bool IsLoopback(std::string_view host) {
  if (host == "::1" || absl::EqualsIgnoreCase(Sv(host), "localhost")) return true;
  // Only a full dotted address: 127.example.org is a name.
  const std::vector<absl::string_view> parts = absl::StrSplit(Sv(host), '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  return std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
    int value = -1;
    return absl::SimpleAtoi(part, &value) && value >= 0 && value <= 255;
  });
}

}  // namespace cuvil::ops
