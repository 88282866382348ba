#include "compiler/import/gguf/arch.h"

#include "absl/strings/str_cat.h"

namespace cuvil::gguf {
namespace {

constexpr Arch kArchs[] = {
    {.name = "llama",  // and mistral, smollm2, tinyllama: their writers call them llama
     .rope = RopeKind::kAdjacentPairs,
     .activation = Activation::kSilu,
     .qkv_bias = Presence::kIfPresent,
     .attn_output_bias = true,
     .ffn_bias = true,
     .qk_norm = false,
     .post_norms = false,
     .scale_embedding = false,
     .local_period = 0,
     .local_rope_base = 0},
    {.name = "qwen2",
     .rope = RopeKind::kHalfSplit,
     .activation = Activation::kSilu,
     .qkv_bias = Presence::kAlways,
     .attn_output_bias = false,
     .ffn_bias = false,
     .qk_norm = false,
     .post_norms = false,
     .scale_embedding = false,
     .local_period = 0,
     .local_rope_base = 0},
    {.name = "qwen3",
     .rope = RopeKind::kHalfSplit,
     .activation = Activation::kSilu,
     .qkv_bias = Presence::kNever,
     .attn_output_bias = false,
     .ffn_bias = false,
     .qk_norm = true,
     .post_norms = false,
     .scale_embedding = false,
     .local_period = 0,
     .local_rope_base = 0},
    {.name = "gemma3",
     .rope = RopeKind::kHalfSplit,
     .activation = Activation::kGeluTanh,
     .qkv_bias = Presence::kNever,
     .attn_output_bias = false,
     .ffn_bias = false,
     .qk_norm = true,
     .post_norms = true,
     .scale_embedding = true,
     .local_period = 6,
     .local_rope_base = 10000},
};

}  // namespace

const Arch* FindArch(std::string_view name) {
  for (const Arch& arch : kArchs) {
    if (name == arch.name) return &arch;
  }
  return nullptr;
}

std::string ArchNames() {
  std::string names;
  for (const Arch& arch : kArchs) absl::StrAppend(&names, names.empty() ? "" : ", ", arch.name);
  return names;
}

}  // namespace cuvil::gguf
