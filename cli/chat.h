// A chat on the terminal: reads a line, streams the answer, remembers both.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "engine/generate.h"

namespace cuvil::cli {

// Until /bye or Ctrl-D (0) or Ctrl-C twice at the prompt (130). `request` holds everything but the
// prompt; the n-th answer draws from seed + n.
absl::StatusOr<int> Chat(engine::Engine& engine, engine::Sampler& sampler, engine::Request request,
                         const std::optional<std::string>& system);

}  // namespace cuvil::cli
