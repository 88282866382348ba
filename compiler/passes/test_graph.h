// A small decoder-only step for tests of the passes and the planner: the graph an importer builds,
// with hooks for what a test wants to vary.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/builder.h"

namespace cuvil::passes {

struct TestModel {
  int layers = 2;
  int64_t width = 64, hidden = 96, vocab = 100, heads = 4, kv_heads = 2, head_dim = 32;
  DType weights = DType::kQ4_1;
  bool post_norms = false, bias = false, qk_norm = false, half_rope = false;
  int64_t rope_dim = 32;
  double softcap = 0;
  int64_t window = 0;  // of odd layers
  double attention_softcap = 0;
  double scale = 0.25, odd_scale = 0.25;  // of scores in even and odd layers
  int64_t odd_heads = 0;                  // query heads of odd layers; 0: as the others
  // The activation of the gate; anything but silu and gelu_tanh has no kernel.
  ir::OpKind activation = ir::OpKind::kSilu;
};

class TestGraph {
 public:
  explicit TestGraph(const TestModel& m) : m_(m), b_("step") {}

  ir::Graph Build() {
    rows_ = b_.AddSymbol({"T", 1, 512, {1}});
    const ir::SymbolId outs = b_.AddSymbol({"R", 1, 512, {1}});
    const auto ids = b_.Input("ids", ir::TensorType{DType::kI32, {rows_}});
    positions_ = b_.Input("positions", ir::TensorType{DType::kI32, {rows_}});
    const auto out_rows = b_.Input("out_rows", ir::TensorType{DType::kI32, {outs}});
    step_ = b_.Input("step", ir::StepType{});
    std::vector<ir::ValueId> states;
    for (int i = 0; i < m_.layers; ++i) {
      states.push_back(
          b_.Input(absl::StrCat("kv.", i), ir::KvType{m_.kv_heads, m_.head_dim, DType::kF32, ""}));
    }
    const auto table =
        b_.Weight("token_embd.weight", ir::TensorType{m_.weights, {m_.vocab, m_.width}});
    auto x = b_.Gather(table, ids);
    if (m_.weights == DType::kF16 || m_.weights == DType::kBf16) x = b_.Cast(x, DType::kF32);
    for (int i = 0; i < m_.layers; ++i) x = FeedForward(Attention(x, i, &states[i]), i);
    b_.SetLoc("output_norm.weight");
    const auto normed =
        b_.RmsNorm(b_.Gather(x, out_rows), Vector("output_norm.weight", m_.width), 1e-5);
    auto logits = b_.MatMul(normed, table, {.transpose_b = true});
    if (m_.softcap > 0) {
      logits = b_.Mul(b_.Tanh(b_.Mul(logits, b_.Scalar(1 / m_.softcap))), b_.Scalar(m_.softcap));
    }
    b_.Output("logits", logits);
    for (int i = 0; i < m_.layers; ++i) b_.Output(absl::StrCat("kv.", i), states[i]);
    auto graph = std::move(b_).Finish();
    CUVIL_CHECK(graph.ok(), graph.status().message());
    return *std::move(graph);
  }

 private:
  ir::ValueId Vector(const std::string& name, int64_t n) {
    return b_.Weight(name, ir::TensorType{DType::kF32, {n}});
  }
  ir::ValueId Linear(ir::ValueId x, const std::string& name, int64_t n, int64_t k, bool bias) {
    b_.SetLoc(name + ".weight");
    const auto w = b_.Weight(name + ".weight", ir::TensorType{m_.weights, {n, k}});
    const auto y = b_.MatMul(x, w, {.transpose_b = true});
    return bias ? b_.Add(y, Vector(name + ".bias", n)) : y;
  }
  ir::ValueId Head(ir::ValueId x, const std::string& name, int64_t heads, bool rotate) {
    auto y = b_.Reshape(Linear(x, name, heads * m_.head_dim, m_.width, m_.bias),
                        {rows_, heads, m_.head_dim});
    if (!rotate) return y;
    if (m_.qk_norm) y = b_.RmsNorm(y, Vector(name + "_norm.weight", m_.head_dim), 1e-6);
    if (m_.rope_dim == 0) return y;
    std::vector<double> freqs;
    for (int64_t i = 0; i < m_.rope_dim / 2; ++i) freqs.push_back(1.0 / (1 + i));
    return b_.Rope(y, positions_, {.dim = m_.rope_dim, .freqs = freqs, .half = m_.half_rope});
  }
  ir::ValueId Attention(ir::ValueId x, int i, ir::ValueId* state) {
    const std::string blk = absl::StrCat("blk.", i, ".");
    const int64_t heads = i % 2 && m_.odd_heads > 0 ? m_.odd_heads : m_.heads;
    b_.SetLoc(blk + "attn_norm.weight");
    const auto a = b_.RmsNorm(x, Vector(blk + "attn_norm.weight", m_.width), 1e-5);
    const auto q = Head(a, blk + "attn_q", heads, true),
               k = Head(a, blk + "attn_k", m_.kv_heads, true);
    const auto v = Head(a, blk + "attn_v", m_.kv_heads, false);
    b_.SetLoc(blk + "attention");
    *state = b_.KvAppend(*state, k, v, step_);
    auto o = b_.Attention(q, *state, step_,
                          {.scale = i % 2 ? m_.odd_scale : m_.scale,
                           .window = i % 2 ? m_.window : 0,
                           .softcap = m_.attention_softcap});
    o = b_.Reshape(o, {rows_, heads * m_.head_dim});
    o = Linear(o, blk + "attn_output", m_.width, heads * m_.head_dim, false);
    if (m_.post_norms)
      o = b_.RmsNorm(o, Vector(blk + "post_attention_norm.weight", m_.width), 1e-5);
    return b_.Add(x, o);
  }
  ir::ValueId FeedForward(ir::ValueId x, int i) {
    const std::string blk = absl::StrCat("blk.", i, ".");
    b_.SetLoc(blk + "ffn_norm.weight");
    const auto f = b_.RmsNorm(x, Vector(blk + "ffn_norm.weight", m_.width), 1e-5);
    const auto gate = Linear(f, blk + "ffn_gate", m_.hidden, m_.width, false);
    const auto up = Linear(f, blk + "ffn_up", m_.hidden, m_.width, false);
    b_.SetLoc(blk + "ffn_act");
    auto d = Linear(b_.Mul(b_.Unary(m_.activation, gate), up), blk + "ffn_down", m_.width,
                    m_.hidden, false);
    if (m_.post_norms) d = b_.RmsNorm(d, Vector(blk + "post_ffw_norm.weight", m_.width), 1e-5);
    return b_.Add(x, d);
  }

  const TestModel m_;
  ir::GraphBuilder b_;
  ir::SymbolId rows_;
  ir::ValueId positions_, step_;
};

inline ir::Graph MakeTestGraph(const TestModel& m = {}) { return TestGraph(m).Build(); }

}  // namespace cuvil::passes
