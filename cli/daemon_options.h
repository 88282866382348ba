// The daemon's options on a command line: one flag per row of the option table
// (server/ops/options.h), so that help, checks and origins come from it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "server/daemon/daemon.h"

namespace cuvil::cli {

struct DaemonFlags {
  std::string config_path;
  std::vector<std::pair<CLI::Option*, std::string>> given;  // of the command line, by option name
};

// Declares --config and a flag for each option.
std::shared_ptr<DaemonFlags> AddDaemonFlags(CLI::App* app);

// Reads all layers. Errors of LoadConfig.
absl::StatusOr<ops::Effective> ResolveConfig(const DaemonFlags& flags);
// The same with what the daemon needs beside it: the default model where none is named (NotFound
// when it is not there), the cache folder.
absl::StatusOr<server::DaemonOptions> ResolveDaemonOptions(const DaemonFlags& flags);

}  // namespace cuvil::cli
