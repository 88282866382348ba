// The inputs of a language model's step, in the order in which the planner declares them and the
// step runner fills them. Names in a Program are for people; these numbers are the contract.
#pragma once

#include <cstdint>

namespace cuvil::runtime {

// Program::header.
enum StepScalar : int {
  kStepRows,      // rows of the step
  kStepOuts,      // rows whose logits are wanted
  kStepItems,     // attention work items
  kStepMerges,    // attention merge items
  kStepPrefetch,  // bytes
  kStepHidden,    // rows, when their hidden states are wanted; else 0
  kStepScalars,
};

// Program::inputs; one table per rotation follows.
enum StepInput : int {
  kStepIds,        // s32 per row
  kStepRowKv,      // s64 pairs per row: byte offset of the page, slot in it
  kStepTables,     // s64 page offsets of all sequences
  kStepItemList,   // template_attention.h
  kStepMergeList,  // template_attention.h
  kStepOutRows,    // s32 rows whose logits are wanted
  kStepRope,       // first rotation table
};

// Program::outputs.
enum StepOutput : int {
  kStepLogits,        // f32 [outs][vocab rounded up to 64]
  kStepHiddenStates,  // f32 [rows][embedding], after the last norm
};

// Beyond every position.
inline constexpr int64_t kNoWindow = int64_t{1} << 40;

}  // namespace cuvil::runtime
