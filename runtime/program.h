// Program: what the compiler hands the runtime, as plain data without pointers. One program serves
// every step of a model: each Plan is a launch list for a range of row counts; all plans share the
// packed weights, so one can replace another between steps.
//
//   Program   target, kernels[], header scalars[], inputs[], outputs[], states[], weights[],
//   plans[]
//     Plan    rows, arena bytes, slots[], launches[]
//     Launch  kernel, grid, buffers[] (region, index, offset), scalars[], segment
//
// Immutable once built; shared as shared_ptr<const Program>.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "runtime/layout.h"

namespace cuvil::runtime {

// A run-time number: constant + multiply * ceil(header[scalar] / divide); scalar -1 means the
// constant.
struct Expr {
  int scalar = -1;
  int64_t constant = 0;
  int64_t multiply = 1;
  int64_t divide = 1;
  int64_t Evaluate(const int64_t* header) const {
    if (scalar < 0) return constant;
    return constant + multiply * ((header[scalar] + divide - 1) / divide);
  }
  bool operator==(const Expr&) const = default;
};

enum class Region : uint8_t { kArena, kWeights, kState, kInput, kOutput };

struct Arg {
  Region region = Region::kArena;
  int32_t index = 0;   // which weight, state, input or output; 0 for the arena
  int64_t offset = 0;  // bytes
  bool operator==(const Arg&) const = default;
};

struct Launch {
  int32_t kernel = 0;
  Expr grid;                  // tiles; 0 skips the launch
  std::vector<Arg> buffers;   // as the kernel declares them
  std::vector<Expr> scalars;  // as the kernel declares them
  int32_t segment = -1;       // weights segment that must have landed first; -1: none
  int32_t decision = -1;      // index into Program::decisions that made this launch
  std::string label;          // "blk.3 gate_up": for profiles and explain
};

// A named piece of the arena with its first and last use (launch numbers), for the memory checker.
struct Slot {
  std::string name;
  int64_t offset = 0, bytes = 0;
  int32_t first = 0, last = 0;
};

struct Plan {
  std::string name;           // "decode", "prefill"
  int64_t rows_max = 0;       // serves steps of 1..rows_max rows
  int32_t row_block = 1;      // rows an attention work item may have, besides 1
  int32_t partial_slots = 0;  // attention results that may wait for the merge
  int64_t arena_bytes = 0;
  std::vector<Slot> slots;
  std::vector<Launch> launches;
};

struct KernelDecl {
  std::string symbol;  // unique in the program
  int64_t scratch_bytes = 0;
  int32_t buffers = 0, scalars = 0;
  // For people (explain); not part of the meaning.
  int32_t ir_ops = 0;
  int64_t code_bytes = 0;
  double compile_s = 0;
};

// A run of consecutive rows of one tensor of the model file.
struct RowRun {
  std::string tensor;  // empty: rows of zeros (padding)
  int64_t row = 0, rows = 0;
};

// How one weight is made from the file at load time.
enum class Prep : uint8_t {
  kStrips,  // matrix rows packed in `layout`; k columns
  kFloats,  // all elements decoded to f32, in order, padded with zeros to `bytes`
};

struct WeightDecl {
  std::string name;
  Prep prep = Prep::kStrips;
  WeightLayout layout = WeightLayout::kF32;
  int64_t k = 0;             // columns of every source row
  std::vector<RowRun> runs;  // packed rows in order; counts add up to a multiple of kStripRows
  int64_t bytes = 0;         // packed size
  int64_t offset = 0;        // in the weights region, 64-byte aligned
  int32_t segment = 0;       // loads in this order
};

struct BufferDecl {
  std::string name;
  DType dtype = DType::kF32;
};

struct StateDecl {
  std::string name;
  int64_t page_bytes = 0;
  int32_t page_tokens = 0;
};

// A rotation the step's host side tabulates: per row, dim cosines then dim signed sines, f32, in
// the order of the head's elements (a pair repeats its cosine; its first sine is negative).
struct RopeDecl {
  std::string input;  // name of the input the table goes to
  bool half = false;  // pairs (i, i + dim/2) instead of (2i, 2i+1)
  int32_t dim = 0;
  double scale = 1;           // of cosines and sines
  std::vector<double> freqs;  // dim / 2 radians per position
};

// Why a group of operations became one launch, or did not.
struct Decision {
  std::string rule;  // "linear.norm_prologue"
  bool applied = true;
  std::string reason;
  double trust = 1;                  // 0..1
  std::vector<std::string> sources;  // locations of every operation in it
};

struct Program {
  int32_t format = 1;
  std::string key;                  // content address; see compiler/driver
  std::string target;               // cpu:avx512vnni
  std::vector<std::string> header;  // names of the header scalars, in order
  std::vector<BufferDecl> inputs, outputs;
  std::vector<StateDecl> states;
  std::vector<WeightDecl> weights;
  int64_t weights_bytes = 0;
  int32_t segments = 0;
  std::vector<KernelDecl> kernels;
  std::vector<Plan> plans;  // ascending rows_max
  std::vector<Decision> decisions;
  std::vector<RopeDecl> ropes;
};

}  // namespace cuvil::runtime
