#include "compiler/import/gguf/graph.h"

#include <utility>

#include "compiler/import/gguf/rope.h"
#include "compiler/ir/builder.h"

namespace cuvil::gguf {
namespace {

using ir::ValueId;

// Emits one model; lives for one BuildGraph call.
class StepGraph {
 public:
  StepGraph(const ModelConfig& config, const ModelTensors& tensors, const GraphLimits& limits)
      : c_(config), t_(tensors), b_("step") {
    rows_ = b_.AddSymbol({"T", 1, limits.rows_max, {1, 8, limits.rows_max}});
    outs_ = b_.AddSymbol({"R", 1, limits.rows_max, {1}});
  }

  absl::StatusOr<ir::Graph> Build() {
    const ValueId ids = b_.Input("ids", ir::TensorType{DType::kI32, {rows_}});
    positions_ = b_.Input("positions", ir::TensorType{DType::kI32, {rows_}});
    const ValueId out_rows = b_.Input("out_rows", ir::TensorType{DType::kI32, {outs_}});
    step_ = b_.Input("step", ir::StepType{});
    std::vector<ValueId> states;
    for (int64_t i = 0; i < c_.n_layer; ++i) {
      states.push_back(
          b_.Input(absl::StrCat("kv.", i), ir::KvType{c_.n_head_kv, c_.head_dim, DType::kF32, ""}));
    }
    const ValueId table = Weight(t_.token_embd);
    ValueId x = b_.Gather(table, ids);
    // Activations are f32 whatever the file stores; rows of block types come out as f32 already.
    const DType stored = t_.token_embd->dtype;
    if (!IsBlock(stored) && stored != DType::kF32) x = b_.Cast(x, DType::kF32);
    if (c_.embedding_scale != 1) x = b_.Mul(x, b_.Scalar(c_.embedding_scale));
    for (int64_t i = 0; i < c_.n_layer; ++i) {
      x = AttentionBlock(x, i, &states[i]);
      x = FeedForward(x, i);
    }
    b_.SetLoc(std::string(t_.output_norm->name));
    const ValueId normed = b_.RmsNorm(b_.Gather(x, out_rows), Weight(t_.output_norm), c_.rms_eps);
    const ValueId head = c_.tied_head ? table : Weight(t_.output);
    b_.SetLoc(std::string(t_.output->name));
    ValueId logits = b_.MatMul(normed, head, {.transpose_b = true});
    if (c_.logit_softcap > 0) {
      logits = b_.Mul(b_.Tanh(b_.Mul(logits, b_.Scalar(1 / c_.logit_softcap))),
                      b_.Scalar(c_.logit_softcap));
    }
    b_.Output("logits", logits);
    for (int64_t i = 0; i < c_.n_layer; ++i) b_.Output(absl::StrCat("kv.", i), states[i]);
    return std::move(b_).Finish();
  }

 private:
  ValueId Weight(const Tensor* tensor) {
    std::vector<ir::Dim> dims;
    for (const int64_t d : tensor->shape()) dims.emplace_back(d);
    return b_.Weight(std::string(tensor->name), ir::TensorType{tensor->dtype, std::move(dims)});
  }

  // x W^T [+ bias]
  ValueId Linear(ValueId x, const Tensor* weight, const Tensor* bias) {
    b_.SetLoc(std::string(weight->name));
    ValueId y = b_.MatMul(x, Weight(weight), {.transpose_b = true});
    if (bias != nullptr) y = b_.Add(y, Weight(bias));
    return y;
  }

  ValueId Heads(ValueId x, int64_t heads) { return b_.Reshape(x, {rows_, heads, c_.head_dim}); }

  ValueId Rotated(ValueId x, int64_t layer) {
    return b_.Rope(x, positions_,
                   {.dim = c_.rope.dim,
                    .freqs = RopeFrequencies(c_, layer),
                    .half = c_.rope.kind == RopeKind::kHalfSplit,
                    .scale = RopeMagnitude(c_, layer)});
  }

  ValueId AttentionBlock(ValueId x, int64_t layer, ValueId* state) {
    const LayerTensors& t = t_.layers[layer];
    b_.SetLoc(std::string(t.attn_norm->name));
    const ValueId a = b_.RmsNorm(x, Weight(t.attn_norm), c_.rms_eps);
    ValueId q = Heads(Linear(a, t.attn_q, t.attn_q_bias), c_.n_head);
    if (c_.qk_norm) q = b_.RmsNorm(q, Weight(t.attn_q_norm), c_.rms_eps);
    q = Rotated(q, layer);
    ValueId k = Heads(Linear(a, t.attn_k, t.attn_k_bias), c_.n_head_kv);
    if (c_.qk_norm) k = b_.RmsNorm(k, Weight(t.attn_k_norm), c_.rms_eps);
    k = Rotated(k, layer);
    const ValueId v = Heads(Linear(a, t.attn_v, t.attn_v_bias), c_.n_head_kv);
    b_.SetLoc(absl::StrCat("blk.", layer, ".attention"));
    *state = b_.KvAppend(*state, k, v, step_);
    ValueId o = b_.Attention(
        q, *state, step_,
        {.scale = c_.attention_scale, .window = c_.is_local(layer) ? c_.sliding_window : 0});
    o = b_.Reshape(o, {rows_, c_.n_head * c_.head_dim});
    o = Linear(o, t.attn_output, t.attn_output_bias);
    if (c_.post_norms) o = b_.RmsNorm(o, Weight(t.attn_post_norm), c_.rms_eps);
    return b_.Add(x, o);
  }

  ValueId FeedForward(ValueId x, int64_t layer) {
    const LayerTensors& t = t_.layers[layer];
    b_.SetLoc(std::string(t.ffn_norm->name));
    const ValueId f = b_.RmsNorm(x, Weight(t.ffn_norm), c_.rms_eps);
    const ValueId gate = Linear(f, t.ffn_gate, t.ffn_gate_bias);
    const ValueId up = Linear(f, t.ffn_up, t.ffn_up_bias);
    b_.SetLoc(std::string(t.ffn_gate->name));
    const ValueId act = b_.Unary(
        c_.activation == Activation::kSilu ? ir::OpKind::kSilu : ir::OpKind::kGeluTanh, gate);
    ValueId d = Linear(b_.Mul(act, up), t.ffn_down, t.ffn_down_bias);
    if (c_.post_norms) d = b_.RmsNorm(d, Weight(t.ffn_post_norm), c_.rms_eps);
    return b_.Add(x, d);
  }

  const ModelConfig& c_;
  const ModelTensors& t_;
  ir::GraphBuilder b_;
  ir::SymbolId rows_, outs_;
  ValueId positions_, step_;
};

}  // namespace

absl::StatusOr<ir::Graph> BuildGraph(const ModelConfig& config, const ModelTensors& tensors,
                                     const GraphLimits& limits) {
  if (config.head_dim != config.head_dim_v) {
    return absl::UnimplementedError(absl::StrCat("values of ", config.head_dim_v,
                                                 " per head with keys of ", config.head_dim,
                                                 " are not supported; both must be equal"));
  }
  return StepGraph(config, tensors, limits).Build();
}

}  // namespace cuvil::gguf
