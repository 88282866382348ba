#include "compiler/import/gguf/tensors.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/blocks.h"

namespace cuvil::gguf {
namespace {

struct Want {
  const char* suffix;
  const Tensor* LayerTensors::* field;
  bool wanted;
  std::vector<int64_t> shape;  // outermost first
};

// Every tensor a layer can have, and whether this model has it.
std::vector<Want> LayerWants(const ModelConfig& c) {
  using L = LayerTensors;
  const int64_t q = c.n_head * c.head_dim, k = c.n_head_kv * c.head_dim;
  const int64_t v = c.n_head_kv * c.head_dim_v, o = c.n_head * c.head_dim_v;
  return {
      {"attn_norm.weight", &L::attn_norm, true, {c.n_embd}},
      {"attn_q.weight", &L::attn_q, true, {q, c.n_embd}},
      {"attn_k.weight", &L::attn_k, true, {k, c.n_embd}},
      {"attn_v.weight", &L::attn_v, true, {v, c.n_embd}},
      {"attn_output.weight", &L::attn_output, true, {c.n_embd, o}},
      {"attn_q.bias", &L::attn_q_bias, c.qkv_bias, {q}},
      {"attn_k.bias", &L::attn_k_bias, c.qkv_bias, {k}},
      {"attn_v.bias", &L::attn_v_bias, c.qkv_bias, {v}},
      {"attn_output.bias", &L::attn_output_bias, c.attn_output_bias, {c.n_embd}},
      {"attn_q_norm.weight", &L::attn_q_norm, c.qk_norm, {c.head_dim}},
      {"attn_k_norm.weight", &L::attn_k_norm, c.qk_norm, {c.head_dim}},
      {"post_attention_norm.weight", &L::attn_post_norm, c.post_norms, {c.n_embd}},
      {"ffn_norm.weight", &L::ffn_norm, true, {c.n_embd}},
      {"ffn_gate.weight", &L::ffn_gate, true, {c.n_ff, c.n_embd}},
      {"ffn_up.weight", &L::ffn_up, true, {c.n_ff, c.n_embd}},
      {"ffn_down.weight", &L::ffn_down, true, {c.n_embd, c.n_ff}},
      {"ffn_gate.bias", &L::ffn_gate_bias, c.ffn_bias, {c.n_ff}},
      {"ffn_up.bias", &L::ffn_up_bias, c.ffn_bias, {c.n_ff}},
      {"ffn_down.bias", &L::ffn_down_bias, c.ffn_bias, {c.n_embd}},
      {"post_ffw_norm.weight", &L::ffn_post_norm, c.post_norms, {c.n_embd}},
  };
}

class Binder {
 public:
  Binder(const File& file, const ModelConfig& config) : file_(file), config_(config) {}

  absl::StatusOr<ModelTensors> Bind() {
    ModelTensors out;
    const std::vector<int64_t> table = {config_.vocab_size, config_.n_embd};
    ASSIGN_OR_RETURN(out.token_embd, Get("token_embd.weight", table));
    ASSIGN_OR_RETURN(out.output_norm, Get("output_norm.weight", {config_.n_embd}));
    out.output = out.token_embd;
    if (!config_.tied_head) {
      ASSIGN_OR_RETURN(out.output, Get("output.weight", table));
    }
    if (!config_.rope.divisors.empty()) {
      RETURN_IF_ERROR(Get(kRopeDivisors, {config_.rope.dim / 2}).status());
    }
    const std::vector<Want> wants = LayerWants(config_);
    for (int64_t i = 0; i < config_.n_layer; ++i) {
      LayerTensors layer;
      for (const Want& want : wants) {
        if (!want.wanted) continue;
        const std::string name = absl::StrCat("blk.", i, ".", want.suffix);
        ASSIGN_OR_RETURN(layer.*want.field, Get(name, want.shape));
      }
      out.layers.push_back(layer);
    }
    RETURN_IF_ERROR(RefuseOthers());
    return out;
  }

 private:
  absl::StatusOr<const Tensor*> Get(const std::string& name, const std::vector<int64_t>& shape) {
    const std::string wanted = absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
    const Tensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(absl::StrCat("tensor ", Quoted(name), " ", wanted,
                                              " is missing from ", Quoted(file_.name()), "; a ",
                                              config_.arch, " model needs it"));
    }
    if (tensor->shape() != shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(name), " is ", Describe(*tensor), ", but its shape must be ", wanted));
    }
    // Vectors multiply or add element by element and are never block-quantised by any writer.
    if (!CanDecode(tensor->dtype) || (shape.size() == 1 && IsBlock(tensor->dtype))) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(name), " is ", Describe(*tensor), ", but ",
                       shape.size() == 1 ? "a vector must be f32, f16 or bf16"
                                         : "weights must be floats or a supported block type"));
    }
    used_.push_back(tensor);
    return tensor;
  }

  // A weight that nothing reads means that the file is a model we would compute wrongly.
  absl::Status RefuseOthers() {
    std::sort(used_.begin(), used_.end());
    for (const Tensor& tensor : file_.tensors()) {
      if (std::binary_search(used_.begin(), used_.end(), &tensor)) continue;
      return absl::UnimplementedError(absl::StrCat(
          "tensor ", Quoted(tensor.name), " (", Describe(tensor), ") is not part of a ",
          config_.arch, " model of ", config_.n_layer, " layers as supported here"));
    }
    return absl::OkStatus();
  }

  const File& file_;
  const ModelConfig& config_;
  std::vector<const Tensor*> used_;
};

}  // namespace

absl::StatusOr<ModelTensors> BindTensors(const File& file, const ModelConfig& config) {
  return Binder(file, config).Bind();
}

}  // namespace cuvil::gguf
