// The text form of kernel IR: what goldens, bug reports and `cuvil explain` show.
//
//   kernel scale {
//     buffer x
//     buffer y written
//     scalar count
//     scratch 64
//
//     %0 : s64 = scalar_arg count
//     %1 : s64 = const 0
//     %2 : f32x8 = const 0.5
//     for %3 = %1 to %0 step 32 {
//       %4 : f32x8 = load x[%3 + 0]
//       %5 : f32x8 = mul %4, %2
//       store y[%3 + 0], %5
//     }
//   }
//
// Numbers are shortest round-trip decimals; `//` starts a comment; names that are not plain words
// are quoted. Print(Parse(Print(k))) == Print(k), byte for byte, for every verified kernel.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/kernel/kir.h"

namespace cuvil::kernel {

inline constexpr int64_t kTextBytesMax = 64 << 20;  // a million values at 64 bytes a line

std::string TypeName(Type t);  // f32x16; s64

// REQUIRES: Verify(kernel) is OK.
std::string Print(const Kernel& kernel);
// One op on one line, without its body.
std::string PrintOp(const Kernel& kernel, int op);

// The verified kernel, or InvalidArgument with a line number. Blocks and ops are numbered as
// Builder numbers them (bodies before their op), values keep the numbers in the text.
absl::StatusOr<Kernel> Parse(std::string_view text);

}  // namespace cuvil::kernel
