#include "server/ops/options.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/ops/values.h"

namespace cuvil::ops {
namespace {

using K = OptionKind;

constexpr double kDay = 86400;
// Rows of the largest step that models are compiled for: each running sequence needs one.
constexpr double kStepRows = 512;
constexpr double kGiB = 1024.0 * 1024 * 1024;

// Upper ends are far beyond sense and short of overflow; they catch a slipped unit.
constexpr Option kOptions[] = {
    {"listen", "server", K::kEndpoint, &Config::listen, "", 0, 0, "",
     "Address and port of the HTTP server; port 0 picks a free one"},
    {"grpc_listen", "server", K::kEndpoint, &Config::grpc_listen, "", 0, 0, "",
     "Address and port of the gRPC server; empty: no gRPC", "", "127.0.0.1:8001"},
    {"ready_file", "server", K::kText, &Config::ready_file, "", 0, 0, "",
     "File that gets the bound addresses as JSON once the server takes requests", "",
     "/run/cuvil/ready.json"},
    {"allowed_hosts", "server", K::kTexts, &Config::allowed_hosts, "", 0, 0, "",
     "Names a request's Host header may have besides the listening address; empty: any on a "
     "public address, loopback names on loopback",
     "allowed-host", "llm.example.org"},
    {"cors_origins", "server", K::kTexts, &Config::cors_origins, "", 0, 0, "",
     "Origins whose pages may call the API; empty: none", "cors-origin", "https://app.example.org"},
    {"allow_no_auth", "server", K::kSwitch, &Config::allow_no_auth, "", 0, 0, "",
     "Serve a non-loopback address without API keys: everyone who reaches it may use it"},
    {"api_keys_file", "server", K::kText, &Config::api_keys_file, "", 0, 0, "",
     "File with one key hash per line, in the form that api_keys takes; # starts a comment; read "
     "again on SIGHUP",
     "", "/etc/cuvil/keys"},
    {"max_connections", "server", K::kCount, &Config::max_connections, "connections", 1, 1e6, "",
     "HTTP connections, and calls of gRPC, at a time; 128 more connections get 503, others are "
     "closed at once"},
    {"max_header_bytes", "server", K::kSize, &Config::max_header_bytes, "bytes", 1024, 1 << 20, "",
     "Request line and headers of one request"},
    {"max_body_bytes", "server", K::kSize, &Config::max_body_bytes, "bytes", 1024, kGiB, "",
     "Body of one request; all that are at hand may have 512 MiB together, or one of this size"},
    {"max_backlog_bytes", "server", K::kSize, &Config::max_backlog_bytes, "bytes", 65536, kGiB, "",
     "Unsent bytes of a stream; a reader further behind is cut off"},
    {"header_timeout_s", "server", K::kDuration, &Config::header_timeout_s, "s", 0.1, 3600, "",
     "Time a client has to send its headers"},
    {"body_timeout_s", "server", K::kDuration, &Config::body_timeout_s, "s", 0.1, 3600, "",
     "Time a client has to send its body"},
    {"write_timeout_s", "server", K::kDuration, &Config::write_timeout_s, "s", 0.1, 3600, "",
     "How long a client may read nothing while an answer waits for it"},
    {"idle_timeout_s", "server", K::kDuration, &Config::idle_timeout_s, "s", 1, kDay, "",
     "How long a connection may idle; keep it above the proxy's own limit, so that the server "
     "closes last"},
    {"sse_ping_s", "server", K::kDuration, &Config::sse_ping_s, "s", 0, 3600, "",
     "Comment sent on a silent stream to keep proxies from closing it; 0: none"},
    {"pool_threads", "server", K::kCount, &Config::pool_threads, "threads", 1, 64, "",
     "Threads that parse requests, render templates, tokenise and write answers"},
    {"drain_timeout_s", "server", K::kDuration, &Config::drain_timeout_s, "s", 0, kDay, "",
     "After SIGTERM, how long running requests may finish; systemd is asked to wait 30 s longer, "
     "others must be told to"},

    {"default_model", "engine", K::kText, &Config::default_model, "", 0, 0, "",
     "Model of requests that name none; empty: the first one", "", "smollm2"},
    {"threads", "engine", K::kCount, &Config::threads, "threads", 0, 1024, "",
     "Worker threads; 0: every core that affinity and CPU quota allow"},
    {"numerics", "engine", K::kChoice, &Config::numerics, "", 0, 0, "exact|fast|deterministic",
     "exact: f32 throughout; fast: 8-bit activations; deterministic: fast, and a token never "
     "depends on who shares its batch"},
    {"target", "engine", K::kText, &Config::target, "", 0, 0, "",
     "Machine to generate code for; empty: the best this CPU has", "", "cpu:avx512vnni"},
    {"memory_limit", "engine", K::kSize, &Config::memory_limit, "bytes", 0, 1024 * 1024 * kGiB, "",
     "Memory for weights, pages, workspace and code; 0: what the control group or the machine "
     "leaves"},
    {"kv_cache_tokens", "engine", K::kCount, &Config::kv_cache_tokens, "tokens", 0, 1e9, "",
     "Keys and values kept per model, in tokens; 0: eight full contexts, or what the memory holds "
     "of them"},
    {"prefix_cache", "engine", K::kSwitch, &Config::prefix_cache, "", 0, 0, "",
     "Keep pages of finished requests for prompts that begin the same, apart for each tenant"},
    {"lazy_load", "engine", K::kSwitch, &Config::lazy_load, "", 0, 0, "",
     "Load a model that is not there when a request names it"},
    {"pin", "engine", K::kSwitch, &Config::pin, "", 0, 0, "",
     "Pin each worker to a core; only where the cores are this server's alone"},
    {"cache_dir", "engine", K::kText, &Config::cache_dir, "", 0, 0, "",
     "Folder of compiled kernels; empty: ~/.cache/cuvil", "", "/var/cache/cuvil"},
    {"watchdog_s", "engine", K::kDuration, &Config::watchdog_s, "s", 0, kDay, "",
     "Without a finished step for this long while work waits, the server reports itself dead; 0: "
     "never"},

    {"max_running", "limits", K::kCount, &Config::max_running, "sequences", 1, kStepRows, "",
     "Sequences that share steps"},
    {"queue_requests", "limits", K::kCount, &Config::queue_requests, "sequences", 1, 1e6, "",
     "Sequences (each choice of a request is one) that may wait besides the max_running that have "
     "places; more get 429 with Retry-After"},
    {"queue_tokens", "limits", K::kCount, &Config::queue_tokens, "tokens", 1, 1e9, "",
     "Prompt tokens of sequences that may wait for a place; more get 429 with Retry-After"},
    {"itl_target_ms", "limits", K::kDuration, &Config::itl_target_ms, "ms", 0, 60000, "",
     "Time between two tokens that prompts must leave to running streams; 0: prompts go first"},
    {"request_timeout_s", "limits", K::kDuration, &Config::request_timeout_s, "s", 0.1, 7 * kDay,
     "", "Longest life of a request that asks for no shorter one"},

    {"log_format", "log", K::kChoice, &Config::log_format, "", 0, 0, "auto|json|text",
     "auto: text on a terminal, JSON lines elsewhere"},
    {"log_level", "log", K::kChoice, &Config::log_level, "", 0, 0, "debug|info|warning|error|off",
     "Least important level that is written"},
    {"metrics_auth", "metrics", K::kSwitch, &Config::metrics_auth, "", 0, 0, "",
     "Ask for an API key on /metrics, when there are keys"},
    {"metrics_compat", "metrics", K::kChoice, &Config::metrics_compat, "", 0, 0, "none|vllm",
     "vllm: also export the vllm: names that routers and dashboards read"},

    {"models", "", K::kModels, &Config::models, "", 0, 0, "", "Models to serve", "model"},
    {"api_keys", "", K::kKeys, &Config::api_keys, "", 0, 0, "",
     "Hashes of the keys that may call; cuvil config --new-key makes one", "api-key"},
};

constexpr std::string_view kKnownVariables[] = {
    "CUVIL_CONFIG",  // which file to read
    "CUVIL_MODEL",   // the one model, when no layer names any
    // Other commands and the ./dev script.
    "CUVIL_MODEL_DIR", "CUVIL_PERF_MAP",
    // Tests.
    "CUVIL_SOURCE_DIR", "CUVIL_BIN_DIR", "CUVIL_UPDATE_GOLDEN"};
constexpr std::string_view kKnownPrefixes[] = {"CUVIL_TEST_", "CUVIL_FUZZ_", "CUVIL_PROPERTY_",
                                               "CUVIL_CONFORMANCE_"};

absl::Status Context(const Option& option, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(Sv(option.name), ": ", status.message()));
}

absl::Status SetNumber(const Option& option, std::string_view text, Config* config) {
  if (const auto* field = std::get_if<int64_t Config::*>(&option.field)) {
    ASSIGN_OR_RETURN(const int64_t value,
                     option.kind == K::kSize ? ParseSize(text) : ParseCount(text));
    RETURN_IF_ERROR(CheckRange(static_cast<double>(value), option.min, option.max, option.unit));
    config->*(*field) = value;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const double value, ParseDuration(text, option.unit));
  RETURN_IF_ERROR(CheckRange(value, option.min, option.max, option.unit));
  config->*(std::get<double Config::*>(option.field)) = value;
  return absl::OkStatus();
}

absl::Status SetText(const Option& option, std::string_view text, Config* config) {
  RETURN_IF_ERROR(CheckPlainText(text));
  if (option.kind == K::kChoice) RETURN_IF_ERROR(CheckChoice(text, option.choices));
  if (option.kind == K::kEndpoint && !text.empty()) RETURN_IF_ERROR(ParseEndpoint(text).status());
  config->*(std::get<std::string Config::*>(option.field)) = std::string(text);
  return absl::OkStatus();
}

template <typename T>
absl::Status SetItems(const std::vector<std::string>& texts,
                      absl::StatusOr<T> (*parse)(std::string_view), std::vector<T>* items) {
  std::vector<T> parsed;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(T item, parse(text));
    parsed.push_back(std::move(item));
  }
  *items = std::move(parsed);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ParseItem(std::string_view text) {
  RETURN_IF_ERROR(CheckPlainText(text));
  return std::string(text);
}

absl::Status Set(const Option& option, const std::vector<std::string>& texts, Config* config) {
  switch (option.kind) {
    case K::kTexts:
      return SetItems(texts, ParseItem, &(config->*(std::get<4>(option.field))));
    case K::kModels:
      return SetItems(texts, ParseModel, &(config->*(std::get<5>(option.field))));
    case K::kKeys:
      return SetItems(texts, ParseKey, &(config->*(std::get<6>(option.field))));
    default:
      break;
  }
  if (texts.size() != 1) return absl::InvalidArgumentError("takes one value, not a list");
  if (option.kind == K::kSwitch) {
    ASSIGN_OR_RETURN(config->*(std::get<bool Config::*>(option.field)), ParseSwitch(texts[0]));
    return absl::OkStatus();
  }
  const bool number =
      option.kind == K::kCount || option.kind == K::kSize || option.kind == K::kDuration;
  return number ? SetNumber(option, texts[0], config) : SetText(option, texts[0], config);
}

template <typename T, typename F>
std::string Joined(const std::vector<T>& items, F text) {
  return absl::StrJoin(items, ",",
                       [&](std::string* out, const T& item) { out->append(text(item)); });
}

// Of a Service link: "<NAME>_PORT_<digits>_TCP…".
bool IsPortLink(std::string_view name) {
  for (const std::string_view protocol : {"_TCP", "_UDP", "_SCTP"}) {
    for (size_t at = name.find(protocol); at != name.npos; at = name.find(protocol, at + 1)) {
      size_t digits = at;
      while (digits > 0 && absl::ascii_isdigit(name[digits - 1])) --digits;
      if (digits < at && name.substr(0, digits).ends_with("_PORT_")) return true;
    }
  }
  return false;
}

}  // namespace

std::string Option::Flag() const {
  return absl::StrCat("--",
                      absl::StrReplaceAll(Sv(flag_name.empty() ? name : flag_name), {{"_", "-"}}));
}

std::string Option::Variable() const {
  return absl::StrCat("CUVIL_", absl::AsciiStrToUpper(Sv(name)));
}

std::string Option::TomlKey() const {
  return section.empty() ? std::string(name) : absl::StrCat(Sv(section), ".", Sv(name));
}

absl::Span<const Option> Options() { return kOptions; }

const Option* FindOption(std::string_view name) {
  for (const Option& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

absl::Status SetOption(const Option& option, const std::vector<std::string>& texts,
                       Config* config) {
  return Context(option, Set(option, texts, config));
}

std::string OptionText(const Option& option, const Config& config, bool shorten_keys) {
  switch (option.kind) {
    case K::kSwitch:
      return config.*(std::get<bool Config::*>(option.field)) ? "true" : "false";
    case K::kCount:
      return absl::StrCat(config.*(std::get<int64_t Config::*>(option.field)));
    case K::kSize:
      return SizeText(config.*(std::get<int64_t Config::*>(option.field)));
    case K::kDuration:
      return absl::StrCat(config.*(std::get<double Config::*>(option.field)), Sv(option.unit));
    case K::kText:
    case K::kChoice:
    case K::kEndpoint:
      return config.*(std::get<std::string Config::*>(option.field));
    case K::kTexts:
      return absl::StrJoin(config.*(std::get<4>(option.field)), ",");
    case K::kModels:
      return Joined(config.*(std::get<5>(option.field)), ModelText);
    case K::kKeys:
      return Joined(config.*(std::get<6>(option.field)),
                    [&](const KeyEntry& key) { return KeyText(key, shorten_keys); });
  }
  return "";
}

bool IsKnownVariable(std::string_view name) {
  if (std::find(std::begin(kKnownVariables), std::end(kKnownVariables), name) !=
      std::end(kKnownVariables)) {
    return true;
  }
  return std::any_of(std::begin(kKnownPrefixes), std::end(kKnownPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool IsServiceLink(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")) return true;
  if (name.find("_SERVICE_PORT_") != name.npos) return true;
  if (name.ends_with("_PORT")) {
    return value.starts_with("tcp://") || value.starts_with("udp://") ||
           value.starts_with("sctp://");
  }
  return IsPortLink(name);
}

}  // namespace cuvil::ops
