// Packs matrix rows into the strips of runtime/layout.h. Packing from a block type into the layout
// of the same name moves bits without touching values; layout f32 takes any decodable type through
// DecodeRow. Pure functions, any thread. Load-time code: one core packs several GB/s, faster than a
// disk reads.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "runtime/layout.h"

namespace cuvil::runtime {

std::string_view Name(WeightLayout layout);

// Whether rows of `source` can become strips of `layout`.
bool CanPack(DType source, WeightLayout layout);

// Packs one strip of `k` columns into out[0..WeightStripBytes(layout, k)). rows[r] points to
// RowBytes(source, k) bytes at any alignment, or is null for a row of zeros. CanPack must hold, and
// k must be a multiple of kBlockK and of the source block.
void PackStrip(DType source, WeightLayout layout, int64_t k,
               const uint8_t* const (&rows)[kStripRows], uint8_t* out);

}  // namespace cuvil::runtime
