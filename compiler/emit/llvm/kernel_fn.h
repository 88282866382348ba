// The machine-level signature of every kernel.
#pragma once

#include <cstdint>

namespace cuvil::emit {

// void kernel(buffers, scalars, scratch, tile, first). `first` is 1 on the worker's first tile of a
// launch, else 0.
using KernelFn = void (*)(uint8_t* const* buffers, const int64_t* scalars, uint8_t* scratch,
                          int64_t tile, int64_t first);

}  // namespace cuvil::emit
