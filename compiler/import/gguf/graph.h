// From a model file to CU-IR: one step of a decoder-only transformer over T rows of any number of
// sequences. Every tensor of the file stays a weight of its own name, type and shape.
//
//   inputs   ids i32[T], positions i32[T], out_rows i32[R], step, kv.<layer> states
//   outputs  logits f32[R, vocab], kv.<layer>
#pragma once

#include "base/status.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/tensors.h"
#include "compiler/ir/graph.h"

namespace cuvil::gguf {

struct GraphLimits {
  int64_t rows_max = 512;  // T, rows of one step
};

// REQUIRES: tensors bound from the same file as the config.
absl::StatusOr<ir::Graph> BuildGraph(const ModelConfig& config, const ModelTensors& tensors,
                                     const GraphLimits& limits = {});

}  // namespace cuvil::gguf
