// CompileKernels: a few kernels that are no part of a step (sampling) become linked code, through
// the same artifact cache as steps. Entries are content addressed by the kernels' text, the target
// and the build ids of this program, its module and LLVM, so models share them and neither a
// changed template nor a changed emitter meets an old object.
//
// Any thread; calls are independent.
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/kernel/kir.h"

namespace cuvil::driver {

class ArtifactCache;

struct CompileKernelsOptions {
  emit::Target target;
  int threads = 1;                 // emitting threads
  ArtifactCache* cache = nullptr;  // null: neither read nor write
};

struct CompiledKernels {
  std::shared_ptr<const emit::CodeImage> code;  // one function per kernel, named like it
  int emitted = 0;                              // kernels that were not in the cache
  std::string cache_note;  // why the cache missed or could not be written; empty otherwise
};

// Names must differ. An unusable cache entry is compiled anew, never an error.
absl::StatusOr<CompiledKernels> CompileKernels(absl::Span<const kernel::Kernel> kernels,
                                               const CompileKernelsOptions& options);

}  // namespace cuvil::driver
