// A tiny model as GGUF bytes for tests: the smallest file that ReadConfig and ReadVocab accept,
// with hooks to change or drop any part of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/import/gguf/test_file.h"

namespace cuvil::gguf {

struct ModelBuilder {
  using Setter = std::function<void(FileBuilder&)>;

  explicit ModelBuilder(std::string arch) : arch(std::move(arch)) {
    Set("general.architecture",
        [a = this->arch](FileBuilder& b) { b.Text("general.architecture", a); });
    Int("block_count", 2).Int("embedding_length", 16).Int("feed_forward_length", 24);
    Int("context_length", 64).Int("attention.head_count", 4).Int("attention.head_count_kv", 2);
    Int("vocab_size", 10);
    Float("attention.layer_norm_rms_epsilon", 1e-5f).Float("rope.freq_base", 10000);
    tensors["token_embd.weight"] = {16, 10};
    tensors["output_norm.weight"] = {16};
    const bool qwen3 = this->arch == "qwen3", gemma3 = this->arch == "gemma3";
    for (const std::string blk : {"blk.0.", "blk.1."}) {
      tensors[blk + "attn_norm.weight"] = tensors[blk + "ffn_norm.weight"] = {16};
      tensors[blk + "attn_q.weight"] = tensors[blk + "attn_output.weight"] = {16, 16};
      tensors[blk + "attn_k.weight"] = tensors[blk + "attn_v.weight"] = {16, 8};
      tensors[blk + "ffn_gate.weight"] = tensors[blk + "ffn_up.weight"] = {16, 24};
      tensors[blk + "ffn_down.weight"] = {24, 16};
      if (this->arch == "qwen2") {
        tensors[blk + "attn_q.bias"] = {16};
        tensors[blk + "attn_k.bias"] = tensors[blk + "attn_v.bias"] = {8};
      }
      if (qwen3 || gemma3) {
        tensors[blk + "attn_q_norm.weight"] = tensors[blk + "attn_k_norm.weight"] = {4};
      }
      if (gemma3) {
        tensors[blk + "post_attention_norm.weight"] = tensors[blk + "post_ffw_norm.weight"] = {16};
      }
    }
  }

  ModelBuilder& Set(const std::string& key, Setter setter) {
    metadata[key] = std::move(setter);
    return *this;
  }
  ModelBuilder& Int(const std::string& suffix, uint64_t value) {
    const std::string key = arch + "." + suffix;
    return Set(key,
               [key, value](FileBuilder& b) { b.Entry(key, ValueType::kU64, Bytes().Put(value)); });
  }
  ModelBuilder& Float(const std::string& suffix, float value) {
    const std::string key = arch + "." + suffix;
    return Set(key, [key, value](FileBuilder& b) { b.Float(key, value); });
  }
  ModelBuilder& Text(const std::string& suffix, const std::string& value) {
    const std::string key = arch + "." + suffix;
    return Set(key, [key, value](FileBuilder& b) { b.Text(key, value); });
  }
  std::string Build() const {
    FileBuilder builder;
    for (const auto& [key, setter] : metadata) setter(builder);
    for (const auto& [name, dims] : tensors) builder.Zeros(name, dims);
    return builder.Build();
  }

  std::string arch;
  std::map<std::string, Setter> metadata;
  std::map<std::string, std::vector<uint64_t>> tensors;  // innermost first
};

}  // namespace cuvil::gguf
