// Row-wise pieces that templates share: RMS norm, activation records, all as kernel IR emitted into
// a Builder. `lanes` divides 32 and the row length.
#pragma once

#include <vector>

#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"

namespace cuvil::kernel {

struct RowSource {
  Buf buf;
  Value offset;  // bytes of the row's first element
};

// to[i] = from[i] / sqrt(mean(from^2) + eps) * weight[i], f32. `to` may equal `from`.
void EmitRmsNorm(Builder& b, int lanes, int64_t k, double eps, RowSource from, Buf weight,
                 Value weight_offset, RowSource to);

// The row record of k f32 values at `from`, written at `to`.
void EmitActRecord(Builder& b, int lanes, int64_t k, ActFormat format, RowSource from,
                   RowSource to);

// Block number `block` (32 values, given as vectors in order) of a row record for k values at `to`.
void EmitActBlock(Builder& b, int lanes, int64_t k, ActFormat format,
                  const std::vector<Value>& values, RowSource to, Value block);

}  // namespace cuvil::kernel
