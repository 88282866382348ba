// The tensor descriptors of a GGUF file: name, dimensions, type, offset into the data section.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "compiler/import/gguf/cursor.h"
#include "compiler/import/gguf/file.h"

namespace cuvil::gguf {

// The fewest bytes a descriptor takes: a one-byte name, one dimension.
inline constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Reads descriptor number `index`. On return `offset` is relative to the data section, and data is
// empty; `bytes` is the size of the data.
absl::Status ReadTensorInfo(Cursor& cursor, uint64_t index, Tensor* out, uint64_t* bytes);

}  // namespace cuvil::gguf
