// What a decoder-only transformer in a GGUF file is: its sizes, and every way in which the
// supported architectures differ, as plain data. ReadConfig reads the metadata, bounds every number
// and checks that each tensor the model needs is present with the right shape, so that later stages
// may rely on it. Norm weights are stored ready to multiply (gemma's "1 + w" is already applied in
// the file).
//
// One layer, with the steps in [] present when the config says so:
//   a = norm(x, attn_norm); q,k,v = a Wq [+b], a Wk [+b], a Wv [+b]; [q,k = per-head norm]
//   q,k = rope(q), rope(k); o = softmax(attention_scale * q k^T) v Wo [+b]; [o = norm(o)]; x += o
//   f = norm(x, ffn_norm); f = (act(f Wgate [+b]) * (f Wup [+b])) Wdown [+b]; [f = norm(f)]; x += f
// x starts as token_embd[id] * embedding_scale; logits = norm(x, output_norm) Whead [softcap].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/import/gguf/file.h"

namespace cuvil::gguf {

enum class Activation { kSilu, kGeluTanh };

// Which elements of a head form the rotated pair i: (2i, 2i+1), or (i, i + dim/2).
enum class RopeKind { kAdjacentPairs, kHalfSplit };
enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeConfig {
  RopeKind kind = RopeKind::kAdjacentPairs;
  int64_t dim = 0;            // leading elements of each head that rotate; even
  double base = 10000;        // of full-attention layers
  double local_base = 10000;  // of sliding-window layers, which are never scaled
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // context extension, for kLinear and kYarn
  // YaRN only.
  int64_t original_context = 0;
  double beta_fast = 32, beta_slow = 1, ext_factor = 1, attn_factor = 1;
  // Llama 3: a divisor for each of the dim/2 frequencies; empty when absent.
  std::vector<float> divisors;
};

struct ModelConfig {
  std::string arch;  // "llama", "qwen2", "qwen3", "gemma3"
  std::string name;  // general.name, may be empty
  int64_t n_layer = 0, n_embd = 0, n_ff = 0;
  int64_t n_head = 0, n_head_kv = 0;     // n_head is a multiple of n_head_kv
  int64_t head_dim = 0, head_dim_v = 0;  // of queries and keys; of values
  int64_t vocab_size = 0, context_length = 0;
  double rms_eps = 0;
  RopeConfig rope;
  Activation activation = Activation::kSilu;
  double embedding_scale = 1;  // gemma: sqrt(n_embd)
  double attention_scale = 0;  // multiplies q k^T
  double logit_softcap = 0;    // 0: none; else logits = cap * tanh(logits / cap)
  bool tied_head = false;      // the head is token_embd
  bool qkv_bias = false, attn_output_bias = false, ffn_bias = false;
  bool qk_norm = false;     // per-head norms of q and k before rope
  bool post_norms = false;  // norms after attention and after the feed-forward, before the residual
  // A query at position p in a local layer sees keys at positions above p - sliding_window.
  int64_t sliding_window = 0;      // 0: every layer sees everything
  std::vector<bool> local_layers;  // n_layer flags; empty when sliding_window is 0

  bool is_local(int64_t layer) const { return sliding_window > 0 && local_layers[layer]; }
};

// Errors are one sentence naming the key or tensor, what was found and what was wanted;
// Unimplemented for an architecture or feature that is not supported.
absl::StatusOr<ModelConfig> ReadConfig(const File& file);

}  // namespace cuvil::gguf
