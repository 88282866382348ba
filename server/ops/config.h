// What a daemon is told, as plain typed fields. One table (options.h) says for each field its
// names, type, range and sentence; the initialisers here are the defaults. Layers, each over the
// last: defaults, the TOML file, the environment (CUVIL_*), flags. Every value remembers where it
// came from. Immutable after LoadConfig.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cuvil::ops {

struct ModelEntry {
  std::string name;        // what requests say; empty: the file's name without its suffix
  std::string path;        // the file
  bool preload = true;     // load at start; else on the first request that names it
  std::string numerics;    // empty: the server's
  int64_t max_kv_len = 0;  // positions a sequence keeps; 0: all
  int64_t kv_sinks = 4;    // first positions kept when trimming
  int64_t kv_tokens = 0;   // pages of this model in tokens; 0: the server's kv_cache_tokens
};

// An API key, known only by its hash.
struct KeyEntry {
  std::string hash;                // 64 lower-case hex digits: SHA-256 of the key
  std::string tenant = "default";  // fairness and prefix cache are kept apart by it
  double weight = 1;               // share of the tenant under load, relative to others
  bool admin = false;              // may load and unload models
};

struct Config {
  // [server]
  std::string listen = "127.0.0.1:8000";
  std::string grpc_listen;
  std::string ready_file;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;
  bool allow_no_auth = false;
  std::string api_keys_file;
  int64_t max_connections = 4096;
  int64_t max_header_bytes = int64_t{32} << 10;
  int64_t max_body_bytes = int64_t{16} << 20;
  int64_t max_backlog_bytes = int64_t{4} << 20;
  double header_timeout_s = 10;
  double body_timeout_s = 300;
  double write_timeout_s = 60;
  double idle_timeout_s = 120;
  double sse_ping_s = 15;
  int64_t pool_threads = 1;
  double drain_timeout_s = 30;

  // [engine]
  std::string default_model;
  int64_t threads = 0;
  std::string numerics = "fast";
  std::string target;
  int64_t memory_limit = 0;
  int64_t kv_cache_tokens = 0;
  bool prefix_cache = true;
  bool lazy_load = true;
  bool pin = false;
  std::string cache_dir;
  double watchdog_s = 60;

  // [limits]
  int64_t max_running = 64;
  int64_t queue_requests = 512;
  int64_t queue_tokens = int64_t{1} << 20;
  double itl_target_ms = 25;
  double request_timeout_s = 600;

  // [log] and [metrics]
  std::string log_format = "auto";
  std::string log_level = "info";
  bool metrics_auth = true;
  std::string metrics_compat = "none";

  std::vector<ModelEntry> models;
  std::vector<KeyEntry> api_keys;
};

// Where a value came from.
struct Origin {
  enum class Layer : uint8_t { kDefault, kFile, kEnvironment, kFlag };
  Layer layer = Layer::kDefault;
  std::string detail;  // "path:line", the variable, the flag
  std::string Text() const;
};

struct Sources {
  std::string config_path;                         // --config; empty: CUVIL_CONFIG, else
  std::string default_path = kDefaultConfigPath;   // this one, if it exists
  std::map<std::string, std::string> environment;  // CuvilEnvironment(environ)
  // Option name and text in the order given. A list takes one text per item.
  std::vector<std::pair<std::string, std::string>> flags;

  static constexpr char kDefaultConfigPath[] = "/etc/cuvil/cuvil.toml";
};

// The CUVIL_* variables of an environment as of main().
std::map<std::string, std::string> CuvilEnvironment(const char* const* environment);

struct Effective {
  Config config;
  std::map<std::string, Origin, std::less<>> origins;  // by option name; absent: default
  std::string file;                                    // the TOML file read; empty: none
  std::vector<std::string> warnings;                   // allowed, but worth a line in the log

  const Origin& OriginOf(std::string_view option) const;
};

// Reads the layers and checks every value and how they go together. InvalidArgument (NotFound for
// a missing file) with one sentence: what, where it was said, how to fix it.
absl::StatusOr<Effective> LoadConfig(const Sources& sources);

// For `cuvil config`: one line per option with value and origin, hashes of keys shortened.
std::string EffectiveTable(const Effective& effective);
// {"listen": {"value": …, "origin": "…"}, …}, hashes shortened.
Json EffectiveJson(const Effective& effective);
// A commented TOML file with every option at its default, from the table.
std::string ExampleToml();
// One block per option for manuals and --help-all: flag, variable, key, default, sentence.
std::string OptionReference();

// HOST:PORT with a port of 0..65535; an IPv6 host stands in brackets.
struct Endpoint {
  std::string host;
  int port = 0;
};
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
// Only this machine can reach it: 127.0.0.0/8, ::1, localhost.
bool IsLoopback(std::string_view host);

}  // namespace cuvil::ops
