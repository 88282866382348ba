// The reference interpreter: plain, slow, and the meaning of every op. Passes, rules and backends
// are compared with it.
//
// Numbers: elementwise ops compute in float for f16, bf16 and f32 (rounded once to the result type)
// and in double for f64. matmul, reductions, softmax, norms, rope and attention compute and
// accumulate in double and round once, so a backend that works in f32 is compared with a tolerance
// for its accumulation order. quantise_dynamic computes in float, exactly as ops.def words it.
// Integers are exact, wrapping. Block-typed weights are decoded by base/blocks.h.
//
// Compiled programs never link this library (cuvil_compiler_ir_interp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/tensor.h"

namespace cuvil::ir::interp {

// Which sequence each row of the step belongs to, and its position there. Rows of one sequence need
// not be adjacent or start at zero: a ragged batch of prefill chunks and decode rows is one step.
struct StepInput {
  std::vector<int32_t> sequence;
  std::vector<int32_t> position;
};

// Keys and values of one layer: sequence -> position -> row. Values are already rounded to the
// state's dtype.
struct KvRow {
  std::vector<float> k;  // [kv_heads * dim]
  std::vector<float> v;
};

struct KvState {
  std::map<int32_t, std::map<int32_t, KvRow>> sequences;
};

struct Arguments {
  std::map<std::string, Tensor> inputs;
  std::map<std::string, TensorView> weights;  // borrowed for the call
  std::map<std::string, KvState> states;      // absent: empty
  std::optional<StepInput> step;
  // Only symbols that no input dimension is exactly equal to need a value here.
  std::map<std::string, int64_t> symbols;
};

struct Results {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, KvState> states;
};

// Evaluates the graph. Errors: a malformed graph; an argument that is missing or of another type;
// a symbol out of its range; an index out of range in gather; a step that does not fit its rows.
absl::StatusOr<Results> Evaluate(const Graph& graph, const Arguments& arguments);

// Symbol values implied by the arguments, checked against ranges and every input's dims.
absl::StatusOr<Bindings> BindSymbols(const Graph& graph, const Arguments& arguments);

}  // namespace cuvil::ir::interp
