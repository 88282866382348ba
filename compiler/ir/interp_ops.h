// The interpreter's functions, one per name in the `interp` column of ops.def.
#pragma once

#include <variant>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/interpreter.h"

namespace cuvil::ir::interp {

using HostValue = std::variant<std::monostate, Tensor, TensorView, KvState, StepInput>;

// One node under evaluation. The graph is verified, so types and attributes hold.
struct OpCall {
  const Graph& graph;
  const Node& node;
  const Bindings& bindings;
  std::vector<HostValue*> inputs;  // a state at its last use may be moved from
  std::vector<bool> last_use;      // per input
  std::vector<HostValue> outputs;  // to be filled, one per node output

  TensorView In(size_t index) const;
  // A zero tensor of the output's type at the current bindings.
  absl::StatusOr<Tensor> NewOutput(size_t index = 0) const;
  const Attrs& attrs() const { return node.attrs; }
};

using OpFunction = absl::Status (*)(OpCall&);

// elementwise (interp_elementwise.cc)
absl::Status Unary(OpCall& call);
absl::Status Binary(OpCall& call);
absl::Status Select(OpCall& call);
absl::Status Cast(OpCall& call);
absl::Status Clamp(OpCall& call);

// reductions, products, norms (interp_compute.cc)
absl::Status Reduce(OpCall& call);
absl::Status ArgReduce(OpCall& call);
absl::Status Softmax(OpCall& call);
absl::Status MatMul(OpCall& call);
absl::Status RmsNorm(OpCall& call);
absl::Status LayerNorm(OpCall& call);

// shape and movement (interp_movement.cc)
absl::Status Reshape(OpCall& call);
absl::Status Transpose(OpCall& call);
absl::Status BroadcastTo(OpCall& call);
absl::Status Slice(OpCall& call);
absl::Status Concat(OpCall& call);
absl::Status Gather(OpCall& call);
absl::Status Iota(OpCall& call);
absl::Status Pad(OpCall& call);

// attention and quantisation (interp_attention.cc)
absl::Status Rope(OpCall& call);
absl::Status KvAppend(OpCall& call);
absl::Status Attention(OpCall& call);
absl::Status QuantiseDynamic(OpCall& call);
absl::Status Dequantise(OpCall& call);

// ---- Index arithmetic ----

// Row-major coordinates of a flat index.
std::vector<int64_t> Coordinates(absl::Span<const int64_t> dims, int64_t flat);
int64_t FlatIndex(absl::Span<const int64_t> dims, absl::Span<const int64_t> coordinates);
// The element of a tensor of shape `from` that broadcasting puts at `flat` of shape `to`.
int64_t BroadcastIndex(absl::Span<const int64_t> to, absl::Span<const int64_t> from, int64_t flat);
// Every element as a float or double; block types are decoded. REQUIRES: a float type.
std::vector<double> ToReals(const TensorView& tensor);
// Rounds to the tensor's float dtype.
void StoreReal(Tensor& tensor, int64_t index, double value);

}  // namespace cuvil::ir::interp
