// Compiles a model file without loading its weights: what `compile` and `explain` start from.
// Always anew, never from the cache, which knows neither the text of kernels nor how long they
// took.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "cli/options.h"
#include "compiler/driver/compile.h"

namespace cuvil::cli {

struct CompiledModel {
  driver::Compiled compiled;
  Json key_components;
};

// keep_ir: with the text of every kernel.
absl::StatusOr<CompiledModel> CompileModel(const std::string& path, const CommonOptions& options,
                                           bool keep_ir);

}  // namespace cuvil::cli
