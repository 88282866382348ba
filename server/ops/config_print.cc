// What `cuvil config` shows: the effective values, an example file, the reference of options.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/ops/config.h"
#include "server/ops/options.h"

namespace cuvil::ops {
namespace {

// As a TOML value: numbers and switches bare, the rest quoted. SetOption's texts have no control
// characters.
std::string TomlValue(const Option& option, std::string_view text) {
  if (option.kind == OptionKind::kSwitch || option.kind == OptionKind::kCount) {
    return std::string(text);
  }
  const std::string quoted =
      absl::StrCat("\"", absl::StrReplaceAll(Sv(text), {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
  if (option.kind != OptionKind::kTexts) return quoted;
  return text.empty() ? "[]" : absl::StrCat("[", quoted, "]");
}

std::string RangeText(const Option& option) {
  if (!option.choices.empty()) return std::string(option.choices);
  if (option.max <= option.min) return "";
  return absl::StrFormat("%.12g to %.12g %s", option.min, option.max, option.unit);
}

void AppendWrapped(std::string_view text, std::string_view prefix, std::string* out) {
  constexpr size_t kWidth = 96;
  std::string line(prefix);
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(' ', at);
    if (end == text.npos) end = text.size();
    const std::string_view word = text.substr(at, end - at);
    if (line.size() > prefix.size() && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(out, line, "\n");
      line = std::string(prefix);
    }
    if (line.size() > prefix.size()) line += ' ';
    line += word;
    at = end + 1;
  }
  absl::StrAppend(out, line, "\n");
}

constexpr std::string_view kItems = R"(
# Models to serve. The others' defaults are shown.
# [[models]]
# name = "smollm2"              # what requests say; default: the file's name
# path = "/var/lib/cuvil/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# preload = true                # load at start; else on the first request that names it
# numerics = "fast"             # exact, fast or deterministic; default: the server's
# max_kv_len = 0                # positions a sequence keeps; 0: all
# kv_sinks = 4                  # first positions kept when trimming
# kv_tokens = 0                 # keys and values kept, in tokens; 0: the server's kv_cache_tokens

# Hashes of the keys that may call. `cuvil config --new-key` prints a key and its hash.
# [[api_keys]]
# hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
# tenant = "default"            # fairness and prefix cache are kept apart by it
# weight = 1                    # share under load, relative to other tenants
# admin = false                 # may load and unload models
)";

}  // namespace

std::string EffectiveTable(const Effective& effective) {
  std::vector<std::array<std::string, 3>> rows = {{"option", "value", "from"}};
  size_t widths[2] = {0, 0};
  for (const Option& option : Options()) {
    rows.push_back({std::string(option.name), OptionText(option, effective.config, true),
                    effective.OriginOf(option.name).Text()});
  }
  // A long value pushes only its own row.
  constexpr size_t kValueWidthMax = 48;
  for (const auto& row : rows) {
    for (int i : {0, 1}) widths[i] = std::max(widths[i], std::min(row[i].size(), kValueWidthMax));
  }
  std::string out;
  for (const auto& [name, value, origin] : rows) {
    absl::StrAppend(&out, absl::StrFormat("%-*s  %-*s  %s\n", static_cast<int>(widths[0]), name,
                                          static_cast<int>(widths[1]), value, origin));
  }
  return out;
}

Json EffectiveJson(const Effective& effective) {
  Json json = Json::object();
  for (const Option& option : Options()) {
    const std::string text = OptionText(option, effective.config, true);
    Json value = text;
    if (option.kind == OptionKind::kSwitch) value = text == "true";
    if (const auto* field = std::get_if<int64_t Config::*>(&option.field)) {
      value = effective.config.*(*field);
    }
    if (const auto* field = std::get_if<double Config::*>(&option.field)) {
      value = effective.config.*(*field);
    }
    if (const auto* field = std::get_if<std::vector<std::string> Config::*>(&option.field)) {
      value = effective.config.*(*field);
    }
    if (option.kind == OptionKind::kModels) {
      value = Json::array();
      for (const ModelEntry& model : effective.config.models) {
        value.push_back({{"name", model.name},
                         {"path", model.path},
                         {"preload", model.preload},
                         {"numerics", model.numerics},
                         {"max_kv_len", model.max_kv_len},
                         {"kv_sinks", model.kv_sinks},
                         {"kv_tokens", model.kv_tokens}});
      }
    }
    json[std::string(option.name)] = {{"value", value},
                                      {"origin", effective.OriginOf(option.name).Text()}};
  }
  return json;
}

std::string ExampleToml() {
  std::string out =
      "# Configuration of cuvild, read from /etc/cuvil/cuvil.toml unless --config or CUVIL_CONFIG\n"
      "# names another file. Environment variables (CUVIL_LISTEN for listen) override it, flags\n"
      "# (--listen) override both. Sizes: 64KiB, 2GiB. Durations: 30s, 250ms. The values shown "
      "are\n"
      "# the defaults, or examples where the default is empty.\n";
  std::string_view section;
  for (const Option& option : Options()) {
    if (option.section.empty()) continue;
    if (option.section != section) absl::StrAppend(&out, "\n[", Sv(option.section), "]\n");
    section = option.section;
    const std::string range = RangeText(option);
    AppendWrapped(absl::StrCat(Sv(option.doc), ".", range.empty() ? "" : " Takes ", range,
                               range.empty() ? "" : "."),
                  "# ", &out);
    const std::string value =
        option.example.empty() ? OptionText(option, Config(), false) : std::string(option.example);
    absl::StrAppend(&out, "# ", Sv(option.name), " = ", TomlValue(option, value), "\n");
  }
  return absl::StrCat(out, Sv(kItems));
}

std::string OptionReference() {
  std::string out;
  for (const Option& option : Options()) {
    const std::string value = OptionText(option, Config(), false);
    absl::StrAppend(&out, option.Flag(), "  ", option.Variable(), "  ", option.TomlKey(), "\n");
    AppendWrapped(absl::StrCat(Sv(option.doc), "."), "    ", &out);
    const std::string range = RangeText(option);
    absl::StrAppend(&out, "    default: ", value.empty() ? "empty" : value,
                    range.empty() ? "" : "; takes ", range, "\n\n");
  }
  return out;
}

}  // namespace cuvil::ops
