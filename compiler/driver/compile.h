// Compile: a step graph becomes a linked Program. Kernels are emitted in parallel; the same inputs
// give the same bytes in any process or directory. With a cache, an entry whose content key matches
// is linked instead, after its digests are checked.
//
// Key = SHA-256 over named components (KeyComponents): canonical IR, target, options, layout
// version, and the build ids of this compiler and of LLVM. Locations and paths are not in it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/ir/graph.h"
#include "compiler/plan/step_plan.h"
#include "runtime/program.h"

namespace cuvil::driver {

class ArtifactCache;

struct CompileOptions {
  emit::Target target;
  plan::Numerics numerics = plan::Numerics::kFast;
  int64_t decode_rows = 8;
  int64_t prefill_rows = 512;
  int threads = 1;                 // emitting threads
  ArtifactCache* cache = nullptr;  // null: neither read nor write
  bool keep_ir = false;            // fill Compiled::llvm_ir; bypasses the cache
};

struct Compiled {
  std::shared_ptr<const runtime::Program> program;
  std::shared_ptr<const emit::CodeImage> code;
  std::vector<std::pair<std::string, std::vector<uint8_t>>>
      objects;                                  // symbol, ELF; aligned with program->kernels
  std::vector<std::string> kernel_ir, llvm_ir;  // with keep_ir
  bool from_cache = false;
  std::string cache_note;  // why the cache missed or could not be written; empty otherwise
  double seconds = 0;
};

// The named components of the key, in order.
Json KeyComponents(const ir::Graph& graph, const CompileOptions& options);
std::string KeyOf(const Json& components);

absl::StatusOr<Compiled> CompileStep(const ir::Graph& graph, const CompileOptions& options);

// Counts kernels emitted by this process: a step must never change it.
int64_t KernelsEmitted();

kernel::Machine MachineOf(const emit::Target& target);

}  // namespace cuvil::driver
