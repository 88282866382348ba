// Reads elements of rows of GGUF blocks (q4_0, q4_1, q8_0) where they lie, decoded bit for bit as
// base/blocks.h does. Any number of lanes, which need not be neighbours: one gather each.
#pragma once

#include "base/dtype.h"
#include "compiler/kernel/kir.h"

namespace cuvil::lower {

bool CanDecode(DType dtype);

// The f32 values of these element numbers (s64 lanes, from the start of the buffer).
// REQUIRES: CanDecode(dtype).
kernel::Value DecodePacked(kernel::Builder& b, DType dtype, kernel::Buf buf, kernel::Value element);

}  // namespace cuvil::lower
