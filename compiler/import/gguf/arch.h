// The supported architectures as a table: what each one fixes that the metadata does not say.
// README.md is the recipe for adding a row.
#pragma once

#include <string>
#include <string_view>

#include "compiler/import/gguf/config.h"

namespace cuvil::gguf {

enum class Presence { kNever, kAlways, kIfPresent };

struct Arch {
  const char* name;
  RopeKind rope;
  Activation activation;
  Presence qkv_bias;
  bool attn_output_bias;  // may be present
  bool ffn_bias;          // may be present
  bool qk_norm;
  bool post_norms;
  bool scale_embedding;  // by sqrt(n_embd)
  int local_period;      // with a sliding window: every local_period-th layer is global; 0: none
  double local_rope_base;
};

// Null when unknown.
const Arch* FindArch(std::string_view name);

// "llama, qwen2, ...", for errors.
std::string ArchNames();

}  // namespace cuvil::gguf
