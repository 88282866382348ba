// Compile: a step graph becomes a linked Program. Kernels are emitted in parallel; the same inputs
// give the same bytes in any process or directory. With a cache, an entry whose content key matches
// is linked instead, after its digests are checked. With serve_first the code comes in two parts,
// and the first can answer (docs/adr/0012-serve-first.md).
//
// Key = SHA-256 over named components (KeyComponents): canonical IR, target, options, layout
// version, and the build ids of this program, its module and LLVM. Locations and paths are not in
// it. A program whose build id is unknown is never cached.
//
// Any thread; calls are independent and may share a cache.
#pragma once

#include <atomic>
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
struct Remainder;

struct CompileOptions {
  emit::Target target;
  plan::Numerics numerics = plan::Numerics::kFast;
  int64_t decode_rows = 8;         // largest step of the decode plan
  int64_t prefill_rows = 512;      // largest step at all
  int threads = 1;                 // emitting threads
  ArtifactCache* cache = nullptr;  // null: neither read nor write
  bool keep_ir = false;            // fill Compiled::llvm_ir; bypasses the cache
  // Emit only what the widest plan needs, which can run every step, and leave the rest to
  // CompileRest. What comes from the cache, or with keep_ir, is whole all the same.
  bool serve_first = false;
  // Told the program as soon as it is known, before its code is read and linked: weights can be
  // packed meanwhile. An error ends the call with it. Called again when the code in the cache turns
  // out to be damaged; the last program counts. Null: nobody waits for it.
  std::function<absl::Status(const std::shared_ptr<const runtime::Program>& program)> on_program;
};

struct Compiled {
  std::shared_ptr<const runtime::Program> program;
  std::shared_ptr<const emit::CodeImage> code;
  // Aligned with program->kernels; one that is still to be emitted has no bytes.
  Objects objects;
  std::vector<std::string> kernel_ir, llvm_ir;  // with keep_ir
  bool from_cache = false;
  std::string cache_note;  // why the cache missed or could not be written; empty otherwise
  double seconds = 0;      // wall time of the call; of CompileRest: since CompileStep was called
  // What CompileRest has to do; null when the code is whole. Figures of the kernels it will emit
  // are 0 in `program`.
  std::shared_ptr<const Remainder> rest;
};

// The named components of the key, in order.
Json KeyComponents(const ir::Graph& graph, const CompileOptions& options);
// 64 lower-case hex digits, as the cache wants them.
std::string KeyOf(const Json& components);

// Unimplemented for a graph that is no step or has sizes no template takes, naming the node or the
// size. An unusable cache entry is compiled anew and noted, never an error. REQUIRES: a verified
// graph.
absl::StatusOr<Compiled> CompileStep(const ir::Graph& graph, const CompileOptions& options);

// The program that CompileStep would give, before any of its code: what it will take, in
// milliseconds. Figures of kernels are 0. Errors as of CompileStep.
absl::StatusOr<runtime::Program> PlanProgram(const ir::Graph& graph, const CompileOptions& options);

// The other part of a step that was compiled with serve_first: the result is whole, and the same as
// a call without it would have given; its program is equal to that of `first` but for the figures
// of kernels. The cache is not written: StoreRest does that, when nobody waits. Cancelled once
// `cancel` is true. REQUIRES: first.rest.
absl::StatusOr<Compiled> CompileRest(const Compiled& first, const std::atomic<bool>* cancel);

// Writes the entry of `whole`, which CompileRest(first) gave, into the cache of the options, which
// must still be there. What went wrong, for people; empty when nothing did.
std::string StoreRest(const Compiled& first, const Compiled& whole);

// What the kernel templates need to know of a target.
kernel::Machine MachineOf(const emit::Target& target);

}  // namespace cuvil::driver
