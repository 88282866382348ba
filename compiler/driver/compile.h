// Compile: a step graph becomes a linked Program. Kernels are emitted in parallel; the same inputs
// give the same bytes in any process or directory. With a cache, an entry whose content key matches
// is linked instead, after its digests are checked.
//
// Key = SHA-256 over named components (KeyComponents): canonical IR, target, options, layout
// version, and the build ids of this program, its module and LLVM. Locations and paths are not in
// it. A program whose build id is unknown is never cached.
//
// Any thread; calls are independent and may share a cache.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "compiler/driver/emit_kernels.h"
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
  int64_t decode_rows = 8;         // largest step of the decode plan
  int64_t prefill_rows = 512;      // largest step at all
  int threads = 1;                 // emitting threads
  ArtifactCache* cache = nullptr;  // null: neither read nor write
  bool keep_ir = false;            // fill Compiled::llvm_ir; bypasses the cache
  // Told the program as soon as it is known, before its code is read and linked: weights can be
  // packed meanwhile. An error ends the call with it. Called again when the code in the cache turns
  // out to be damaged; the last program counts. Null: nobody waits for it.
  std::function<absl::Status(const std::shared_ptr<const runtime::Program>& program)> on_program;
};

struct Compiled {
  std::shared_ptr<const runtime::Program> program;
  std::shared_ptr<const emit::CodeImage> code;
  Objects objects;                              // aligned with program->kernels
  std::vector<std::string> kernel_ir, llvm_ir;  // with keep_ir
  bool from_cache = false;
  std::string cache_note;  // why the cache missed or could not be written; empty otherwise
  double seconds = 0;      // wall time of the call
};

// The named components of the key, in order.
Json KeyComponents(const ir::Graph& graph, const CompileOptions& options);
// 64 lower-case hex digits, as the cache wants them.
std::string KeyOf(const Json& components);

// Unimplemented for a graph that is no step or has sizes no template takes, naming the node or the
// size. An unusable cache entry is compiled anew and noted, never an error. REQUIRES: a verified
// graph.
absl::StatusOr<Compiled> CompileStep(const ir::Graph& graph, const CompileOptions& options);

// What the kernel templates need to know of a target.
kernel::Machine MachineOf(const emit::Target& target);

}  // namespace cuvil::driver
