// GraphBuilder: writes a graph in program order, inferring every type at once.
//
// Errors are sticky: the first one is kept (`status()`), every later call returns an invalid id and
// does nothing, and Finish() reports it. So importers write straight-line code and check once.
//
//   GraphBuilder b("mlp");
//   SymbolId s = b.AddSymbol({"S", 1, 512, {1, 64}});
//   ValueId x = b.Input("x", TensorType{DType::kF32, {s, 64}});
//   ValueId w = b.Weight("w", TensorType{DType::kQ4_0, {96, 64}});
//   b.Output("y", b.Silu(b.MatMul(x, w, {.transpose_b = true})));
//   ASSIGN_OR_RETURN(Graph graph, std::move(b).Finish());
//
// One owner, no locks.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"

namespace cuvil::ir {

struct MatMulOptions {
  bool transpose_b = false;
};

struct ReduceOptions {
  std::vector<int64_t> axes;
  bool keepdims = false;
};

struct RopeOptions {
  int64_t dim = 0;
  std::vector<double> freqs;  // dim / 2 radians per position
  bool half = false;          // pairs (i, i + dim/2) instead of (2i, 2i + 1)
  double scale = 1.0;
};

struct AttentionOptions {
  double scale = 1.0;
  bool causal = true;
  int64_t window = 0;
  int64_t sinks = 0;
  double softcap = 0.0;
};

struct SliceOptions {
  std::vector<Dim> starts;
  std::vector<Dim> stops;
  std::vector<int64_t> steps = {};  // empty: all 1
};

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) : graph_(std::move(name)) {}

  // Everything emitted from now on comes from here ("blk.3.attn_q.weight", "model.py:12").
  void SetLoc(std::string_view source) { loc_ = graph_.Loc(source); }

  SymbolId AddSymbol(Symbol symbol) { return graph_.AddSymbol(std::move(symbol)); }
  ValueId Input(std::string name, Type type);
  ValueId Weight(std::string name, TensorType type);
  // Payload row-major, little-endian; at most kConstantBytesMax.
  ValueId Constant(TensorType type, std::vector<uint8_t> bytes, std::string name = "");
  ValueId ConstantF32(std::vector<float> values, std::vector<Dim> dims);
  ValueId ConstantI64(std::vector<int64_t> values, std::vector<Dim> dims);
  // Rank 0, rounded to the dtype.
  ValueId Scalar(double value, DType dtype = DType::kF32);
  void Output(std::string name, ValueId value);

  // Any op. `hint` names the first result in text.
  ValueId Emit(OpKind op, std::vector<ValueId> inputs, Attrs attrs = {}, std::string hint = "");
  // For ops with several results; as many invalid ids on error.
  std::vector<ValueId> EmitAll(OpKind op, std::vector<ValueId> inputs, Attrs attrs = {},
                               std::string hint = "");

  // ---- Elementwise ----
  ValueId Unary(OpKind op, ValueId x) { return Emit(op, {x}); }
  ValueId Binary(OpKind op, ValueId a, ValueId b) { return Emit(op, {a, b}); }
  ValueId Add(ValueId a, ValueId b) { return Emit(OpKind::kAdd, {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Emit(OpKind::kSub, {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Emit(OpKind::kMul, {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Emit(OpKind::kDiv, {a, b}); }
  ValueId Silu(ValueId x) { return Emit(OpKind::kSilu, {x}); }
  ValueId Gelu(ValueId x) { return Emit(OpKind::kGelu, {x}); }
  ValueId Tanh(ValueId x) { return Emit(OpKind::kTanh, {x}); }
  ValueId Select(ValueId cond, ValueId a, ValueId b) { return Emit(OpKind::kSelect, {cond, a, b}); }
  ValueId Cast(ValueId x, DType to) { return Emit(OpKind::kCast, {x}, {{"to", to}}); }
  ValueId Clamp(ValueId x, double min, double max) {
    return Emit(OpKind::kClamp, {x}, {{"min", min}, {"max", max}});
  }

  // ---- Reductions, products, norms ----
  // `op` is one of the reduce_* kinds.
  ValueId Reduce(OpKind op, ValueId x, ReduceOptions options);
  ValueId ArgMax(ValueId x, int64_t axis) { return Emit(OpKind::kArgMax, {x}, {{"axis", axis}}); }
  ValueId Softmax(ValueId x, int64_t axis) { return Emit(OpKind::kSoftmax, {x}, {{"axis", axis}}); }
  ValueId MatMul(ValueId a, ValueId b, MatMulOptions options = {});
  // The weight may be invalid (ValueId{}): none.
  ValueId RmsNorm(ValueId x, ValueId weight, double eps);
  ValueId LayerNorm(ValueId x, ValueId weight, ValueId bias, double eps);

  // ---- Shape and movement ----
  ValueId Reshape(ValueId x, std::vector<Dim> shape);
  ValueId Transpose(ValueId x, std::vector<int64_t> perm);
  ValueId BroadcastTo(ValueId x, std::vector<Dim> shape);
  ValueId Slice(ValueId x, SliceOptions options);
  ValueId Concat(std::vector<ValueId> xs, int64_t axis);
  ValueId Gather(ValueId data, ValueId indices, int64_t axis = 0);
  ValueId Iota(std::vector<Dim> shape, int64_t axis, DType dtype);
  ValueId Pad(ValueId x, std::vector<int64_t> lo, std::vector<int64_t> hi, double value = 0.0);

  // ---- Attention ----
  ValueId Rope(ValueId x, ValueId positions, RopeOptions options);
  ValueId KvAppend(ValueId state, ValueId k, ValueId v, ValueId step) {
    return Emit(OpKind::kKvAppend, {state, k, v, step});
  }
  ValueId Attention(ValueId q, ValueId state, ValueId step, AttentionOptions options);

  // ---- Quantisation ----
  // (q, scale)
  std::pair<ValueId, ValueId> QuantiseDynamic(ValueId x, int64_t group);
  ValueId Dequantise(ValueId q, ValueId scale, int64_t group) {
    return Emit(OpKind::kDequantise, {q, scale}, {{"group", group}});
  }
  // A block-typed weight to f32.
  ValueId Dequantise(ValueId packed) { return Emit(OpKind::kDequantise, {packed}); }

  const absl::Status& status() const { return status_; }
  // The graph so far, for looking at types.
  const Graph& graph() const { return graph_; }
  // REQUIRES: a valid id.
  const Type& type(ValueId id) const { return graph_.type(id); }

  // The verified graph, or the first error.
  absl::StatusOr<Graph> Finish() &&;

 private:
  void Fail(absl::Status status);

  Graph graph_;
  LocId loc_;
  absl::Status status_;
  int constant_count_ = 0;
};

}  // namespace cuvil::ir
