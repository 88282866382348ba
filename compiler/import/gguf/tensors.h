// The tensors of a model by role. BindTensors finds each by its GGUF name and checks its shape and
// type against the config; it also refuses tensors that the model would silently ignore.
#pragma once

#include <vector>

#include "base/status.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/file.h"

namespace cuvil::gguf {

// Matrices are [out, in] (shape outermost first), so y = W x; norms and biases are vectors.
// Pointers belong to the File. Those marked optional are null when the config does not have them.
struct LayerTensors {
  const Tensor* attn_norm = nullptr;         // [n_embd]
  const Tensor* attn_q = nullptr;            // [n_head * head_dim, n_embd]
  const Tensor* attn_k = nullptr;            // [n_head_kv * head_dim, n_embd]
  const Tensor* attn_v = nullptr;            // [n_head_kv * head_dim_v, n_embd]
  const Tensor* attn_output = nullptr;       // [n_embd, n_head * head_dim_v]
  const Tensor* attn_q_bias = nullptr;       // optional: qkv_bias
  const Tensor* attn_k_bias = nullptr;       // optional: qkv_bias
  const Tensor* attn_v_bias = nullptr;       // optional: qkv_bias
  const Tensor* attn_output_bias = nullptr;  // optional: attn_output_bias
  const Tensor* attn_q_norm = nullptr;       // optional: qk_norm, [head_dim]
  const Tensor* attn_k_norm = nullptr;       // optional: qk_norm, [head_dim]
  const Tensor* attn_post_norm = nullptr;    // optional: post_norms, [n_embd]
  const Tensor* ffn_norm = nullptr;          // [n_embd]
  const Tensor* ffn_gate = nullptr;          // [n_ff, n_embd]
  const Tensor* ffn_up = nullptr;            // [n_ff, n_embd]
  const Tensor* ffn_down = nullptr;          // [n_embd, n_ff]
  const Tensor* ffn_gate_bias = nullptr;     // optional: ffn_bias
  const Tensor* ffn_up_bias = nullptr;       // optional: ffn_bias
  const Tensor* ffn_down_bias = nullptr;     // optional: ffn_bias
  const Tensor* ffn_post_norm = nullptr;     // optional: post_norms, [n_embd]
};

struct ModelTensors {
  const Tensor* token_embd = nullptr;   // [vocab_size, n_embd]
  const Tensor* output_norm = nullptr;  // [n_embd]
  const Tensor* output = nullptr;       // [vocab_size, n_embd]; token_embd itself when tied
  std::vector<LayerTensors> layers;
};

absl::StatusOr<ModelTensors> BindTensors(const File& file, const ModelConfig& config);

// The Llama 3 frequency divisors; read into RopeConfig::divisors, so not part of ModelTensors.
inline constexpr char kRopeDivisors[] = "rope_freqs.weight";

}  // namespace cuvil::gguf
