// The one table of options. Names follow from it: option `queue_requests` of section `limits` is
// TOML key limits.queue_requests, variable CUVIL_QUEUE_REQUESTS and flag --queue-requests. The
// example file, the reference and the did-you-mean sentences all read this table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "server/ops/config.h"

namespace cuvil::ops {

enum class OptionKind : uint8_t {
  kSwitch,    // true, false
  kCount,     // whole number
  kSize,      // bytes: 1048576, 64KiB, 2GiB, 1.5GB
  kDuration,  // 30s, 250ms, 5m; a plain number is in the option's unit
  kText,
  kChoice,    // one of `choices`
  kEndpoint,  // HOST:PORT or empty
  kTexts,     // list; comma-separated in the environment
  kModels,    // list of [NAME=]PATH or tables
  kKeys,      // list of sha256:HEX[:TENANT[:WEIGHT[:admin]]] or tables
};

using OptionField =
    std::variant<bool Config::*, int64_t Config::*, double Config::*, std::string Config::*,
                 std::vector<std::string> Config::*, std::vector<ModelEntry> Config::*,
                 std::vector<KeyEntry> Config::*>;

struct Option {
  std::string_view name;
  std::string_view section;  // TOML table; empty: top level
  OptionKind kind;
  OptionField field;
  std::string_view unit;       // "s", "ms", "bytes", "tokens", …
  double min = 0, max = 0;     // inclusive, for numbers, in `unit`
  std::string_view choices;    // "a|b|c"
  std::string_view doc;        // one sentence, no full stop
  std::string_view flag_name;  // where it is not the name itself: lists say their flag in singular
  std::string_view example;    // value in the example file; empty: the default

  std::string Flag() const;      // "--queue-requests"
  std::string Variable() const;  // "CUVIL_QUEUE_REQUESTS"
  std::string TomlKey() const;   // "limits.queue_requests"
  bool is_list() const { return kind >= OptionKind::kTexts; }
};

absl::Span<const Option> Options();
const Option* FindOption(std::string_view name);

// Sets the field from text (a list: from its items). InvalidArgument says what the option takes.
absl::Status SetOption(const Option& option, const std::vector<std::string>& texts, Config* config);
// The value as text that SetOption takes; hashes of keys shortened to 8 digits when asked.
std::string OptionText(const Option& option, const Config& config, bool shorten_keys);

// CUVIL_* variables with a meaning of their own, here or in other commands and in tests.
bool IsKnownVariable(std::string_view name);
// Kubernetes sets these for every Service of the namespace: CUVIL_SERVICE_HOST, CUVIL_PORT=tcp://…
// for one named "cuvil". They are not meant for us.
bool IsServiceLink(std::string_view name, std::string_view value);

}  // namespace cuvil::ops
