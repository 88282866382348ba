// What compiling a step and compiling a few kernels have in common: kernel IR becomes objects on
// several threads, and objects become one image of code.
//
// Any thread; calls are independent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/json.h"
#include "base/status.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/kernel/kir.h"

namespace cuvil::driver {

using Objects = std::vector<std::pair<std::string, std::vector<uint8_t>>>;  // symbol, ELF

// One result per kernel, in the kernels' order whatever the threads did. The error is that of the
// first kernel that has one. `threads` counts the caller; fewer run when the system gives no more.
// Once `cancel` is true no further kernel is begun, and the error is Cancelled; null: never.
absl::StatusOr<std::vector<emit::Emitted>> EmitKernels(absl::Span<const kernel::Kernel> kernels,
                                                       const emit::Target& target, int threads,
                                                       const emit::EmitOptions& options = {},
                                                       const std::atomic<bool>* cancel = nullptr);

// Errors are those of CodeImage::Link. The image keeps nothing of `objects`.
absl::StatusOr<std::shared_ptr<const emit::CodeImage>> LinkObjects(const Objects& objects);

// What keys must name besides the input: the build ids of this program, which holds templates and
// planner, of the module that emits, and of LLVM. Adds them to the components of a key.
void AddCompilerIds(Json& components);
// Whether all of them are known; else nothing may be cached.
bool CompilerIdsKnown();

// Kernels that EmitKernels has emitted in this process, for steps and for sampling. No step changes
// it; while a model that answers first is being finished, another thread does.
int64_t KernelsEmitted();

}  // namespace cuvil::driver
