// `cuvil run --url`: the same question to a running daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/http_client.h"
#include "engine/generate.h"

namespace cuvil::cli {

struct RemoteQuestion {
  Remote remote;
  std::string model;  // served name; empty: the daemon's default
  std::string prompt, system;
  bool has_system = false, raw = false, json = false;
  bool parse_special = false;  // with raw
  bool seeded = false;         // request.sampling.seed was given
  // Not given: as the daemon has it for the model.
  std::optional<int64_t> max_kv_len, kv_sinks;
};

// Streams the answer to standard output (--json: the server's whole answer). Ctrl-C ends it.
absl::Status AskRemote(const RemoteQuestion& question, const engine::Request& request);

}  // namespace cuvil::cli
