// The rules of kernel IR. A verified kernel can be printed, interpreted and emitted without any
// further check of its structure: operand counts and types fit, every use is dominated by its
// definition through the nested blocks, blocks form a tree, stores go only to written buffers.
//
// Which types an op takes:
//   - i1 lives in cmp, select, splat, shuffle, extract, insert, and/or/xor, const and if; cvt turns
//   it
//     into an integer; it has no size in memory;
//   - f16 and bf16 are storage types: they can be moved (load, store, gather, splat, select,
//   shuffle,
//     extract, insert, bitcast, const) and converted to and from f32, never computed with;
//   - f32, f64 and the integers compute.
// Fields an op does not use keep their default, so that text carries everything.
#pragma once

#include "base/status.h"
#include "compiler/kernel/kir.h"

namespace cuvil::kernel {

inline constexpr int kLanesMax = 64;        // 64 bytes of u8: one register of the widest target
inline constexpr int kNestingMax = 64;      // blocks in blocks; recursion over them stays shallow
inline constexpr int kBuffersMax = 256;     // far over what a launch binds
inline constexpr int kScalarsMax = 256;     // likewise
inline constexpr int kValuesMax = 1 << 20;  // a kernel of a million values is a runaway generator
inline constexpr int64_t kScratchBytesMax = int64_t{1} << 30;  // per worker; caches are far smaller

inline constexpr int kOpCount = 0
#define X(code, name, doc) +1
    CUVIL_KERNEL_OPS(X)
#undef X
    ;

// OK, or InvalidArgument naming the op and the rule it breaks. Never crashes, whatever it is given.
absl::Status Verify(const Kernel& kernel);

bool IsRegion(OpCode code);    // for, if, once: has a body
bool HasResult(OpCode code);   // defines exactly one value
bool UsesMemory(OpCode code);  // names a buffer

}  // namespace cuvil::kernel
