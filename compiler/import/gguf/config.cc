#include "compiler/import/gguf/config.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/blocks.h"
#include "compiler/import/gguf/arch.h"
#include "compiler/import/gguf/rope.h"
#include "compiler/import/gguf/tensors.h"

namespace cuvil::gguf {
namespace {

// Bounds keep every product of two sizes far below 2^63; each is several times the largest public
// model's (126 layers, 16384 wide, 53248 in the feed-forward, 128 heads, 262144 tokens, 10M
// context).
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxEmbd = 1 << 17;
constexpr int64_t kMaxFf = 1 << 20;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1 << 14;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr int64_t kMaxContext = int64_t{1} << 32;

// Gemma 3 27B, told by its layer count, scales queries by its width per head.
constexpr int64_t kGemma27bLayers = 62;

class ConfigReader {
 public:
  ConfigReader(const File& file, const Arch& arch) : file_(file), arch_(arch) {}

  absl::StatusOr<ModelConfig> Read() {
    c_.arch = arch_.name;
    ASSIGN_OR_RETURN(const std::string_view name, file_.StringOr("general.name", ""));
    c_.name = std::string(name);
    RETURN_IF_ERROR(RefuseFeatures());
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadHeads());
    RETURN_IF_ERROR(ReadVocabSize());
    RETURN_IF_ERROR(ReadVariants());
    RETURN_IF_ERROR(ReadWindow());
    ASSIGN_OR_RETURN(c_.rope, ReadRope(file_, arch_, c_));
    return std::move(c_);
  }

 private:
  std::string Key(const char* suffix) const { return absl::StrCat(arch_.name, ".", suffix); }

  absl::Status Refuse(const std::string& key, const std::string& why) const {
    return absl::UnimplementedError(absl::StrCat("metadata ", Quoted(key), " in ",
                                                 Quoted(file_.name()), " asks for ", why,
                                                 ", which is not supported"));
  }

  // Features of other variants that would change the numbers if they were ignored.
  absl::Status RefuseFeatures() const {
    ASSIGN_OR_RETURN(const int64_t experts, file_.IntOr(Key("expert_count"), 0));
    if (experts != 0) return Refuse(Key("expert_count"), "a mixture of experts");
    ASSIGN_OR_RETURN(const bool causal, file_.BoolOr(Key("attention.causal"), true));
    if (!causal) return Refuse(Key("attention.causal"), "attention to later tokens");
    for (const char* suffix : {"attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale",
                               "residual_scale", "embedding_scale", "attn_logit_softcapping"}) {
      ASSIGN_OR_RETURN(const double value, file_.FloatOr(Key(suffix), 0));
      if (value != 0) return Refuse(Key(suffix), "a scale or clamp");
    }
    ASSIGN_OR_RETURN(const bool parallel, file_.BoolOr(Key("use_parallel_residual"), false));
    if (parallel) return Refuse(Key("use_parallel_residual"), "parallel residuals");
    return absl::OkStatus();
  }

  absl::Status OutOfRange(const std::string& key, int64_t value, int64_t limit) const {
    return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(key), " in ",
                                                   Quoted(file_.name()), " is ", value,
                                                   "; it must be 1 to ", limit));
  }

  // An integer in 1..limit; an array (one value per layer) must hold equal values.
  absl::StatusOr<int64_t> Size(const char* suffix, int64_t limit) const {
    const std::string key = Key(suffix);
    const Value* value = file_.Find(key);
    int64_t size;
    if (value != nullptr && value->type == ValueType::kArray) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, file_.Ints(key));
      size = sizes.empty() ? 0 : sizes[0];
      for (const int64_t other : sizes) {
        if (other != size) return Refuse(key, "different sizes per layer");
      }
    } else {
      ASSIGN_OR_RETURN(size, file_.Int(key));
    }
    if (size < 1 || size > limit) return OutOfRange(key, size, limit);
    return size;
  }

  absl::StatusOr<int64_t> SizeOr(const char* suffix, int64_t limit, int64_t fallback) const {
    return file_.Has(Key(suffix)) ? Size(suffix, limit) : fallback;
  }

  absl::Status ReadSizes() {
    ASSIGN_OR_RETURN(c_.n_layer, Size("block_count", kMaxLayers));
    ASSIGN_OR_RETURN(c_.n_embd, Size("embedding_length", kMaxEmbd));
    ASSIGN_OR_RETURN(c_.n_ff, Size("feed_forward_length", kMaxFf));
    ASSIGN_OR_RETURN(c_.context_length, Size("context_length", kMaxContext));
    const std::string key = Key("attention.layer_norm_rms_epsilon");
    ASSIGN_OR_RETURN(c_.rms_eps, file_.Float(key));
    if (!(c_.rms_eps > 0 && c_.rms_eps < 1)) {
      return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(key), " is ", c_.rms_eps,
                                                     "; it must be between 0 and 1"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeads() {
    ASSIGN_OR_RETURN(c_.n_head, Size("attention.head_count", kMaxHeads));
    ASSIGN_OR_RETURN(c_.n_head_kv, SizeOr("attention.head_count_kv", kMaxHeads, c_.n_head));
    if (c_.n_head % c_.n_head_kv != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", Quoted(Key("attention.head_count")), " is ", c_.n_head,
                       ", not a multiple of the ", c_.n_head_kv, " key/value heads"));
    }
    int64_t implied = 0;
    if (!file_.Has(Key("attention.key_length")) || !file_.Has(Key("attention.value_length"))) {
      implied = c_.n_embd / c_.n_head;
      if (c_.n_embd % c_.n_head != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "metadata ", Quoted(Key("embedding_length")), " is ", c_.n_embd,
            ", not a multiple of the ", c_.n_head, " heads, and no head length is given"));
      }
    }
    ASSIGN_OR_RETURN(c_.head_dim, SizeOr("attention.key_length", kMaxHeadDim, implied));
    ASSIGN_OR_RETURN(c_.head_dim_v, SizeOr("attention.value_length", kMaxHeadDim, implied));
    return absl::OkStatus();
  }

  // The token list decides; a file without one says it in the metadata or by its embedding.
  absl::Status ReadVocabSize() {
    const Value* tokens = file_.Find("tokenizer.ggml.tokens");
    const Tensor* embedding = file_.FindTensor("token_embd.weight");
    if (tokens != nullptr && tokens->type == ValueType::kArray) {
      c_.vocab_size = static_cast<int64_t>(tokens->count);
    } else if (embedding != nullptr && !file_.Has(Key("vocab_size"))) {
      c_.vocab_size = embedding->rows();
    } else {
      ASSIGN_OR_RETURN(c_.vocab_size, Size("vocab_size", kMaxVocab));
    }
    if (c_.vocab_size < 1 || c_.vocab_size > kMaxVocab) {
      return OutOfRange("tokenizer.ggml.tokens", c_.vocab_size, kMaxVocab);
    }
    return absl::OkStatus();
  }

  bool HasTensor(const char* name) const { return file_.FindTensor(name) != nullptr; }

  absl::Status ReadVariants() {
    c_.activation = arch_.activation;
    c_.tied_head = !HasTensor("output.weight");
    c_.qkv_bias = arch_.qkv_bias == Presence::kAlways ||
                  (arch_.qkv_bias == Presence::kIfPresent && HasTensor("blk.0.attn_q.bias"));
    c_.attn_output_bias = arch_.attn_output_bias && HasTensor("blk.0.attn_output.bias");
    c_.ffn_bias = arch_.ffn_bias && HasTensor("blk.0.ffn_up.bias");
    c_.qk_norm = arch_.qk_norm;
    c_.post_norms = arch_.post_norms;
    if (arch_.scale_embedding) c_.embedding_scale = std::sqrt(static_cast<double>(c_.n_embd));
    ASSIGN_OR_RETURN(c_.logit_softcap, file_.FloatOr(Key("final_logit_softcapping"), 0));
    ASSIGN_OR_RETURN(c_.attention_scale, file_.FloatOr(Key("attention.scale"), 0));
    if (!(std::isfinite(c_.logit_softcap) && c_.logit_softcap >= 0 &&
          std::isfinite(c_.attention_scale) && c_.attention_scale >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", Quoted(Key("attention.scale")), " is ", c_.attention_scale,
                       " and ", Quoted(Key("final_logit_softcapping")), " is ", c_.logit_softcap,
                       "; both must be finite and not negative"));
    }
    if (c_.attention_scale == 0) {
      const bool wide = arch_.post_norms && c_.n_layer == kGemma27bLayers;
      const double width = wide ? static_cast<double>(c_.n_embd) / static_cast<double>(c_.n_head)
                                : static_cast<double>(c_.head_dim);
      c_.attention_scale = 1 / std::sqrt(width);
    }
    return absl::OkStatus();
  }

  absl::Status ReadWindow() {
    const std::string key = Key("attention.sliding_window");
    ASSIGN_OR_RETURN(const int64_t window, file_.IntOr(key, 0));
    // Families without local layers write the key for a feature they leave off; a window that
    // covers the whole context changes nothing either.
    if (window == 0 || (arch_.local_period == 0 && window >= c_.context_length)) {
      return absl::OkStatus();
    }
    if (arch_.local_period == 0) return Refuse(key, "a sliding window");
    if (window < 1 || window > kMaxContext) return OutOfRange(key, window, kMaxContext);
    c_.sliding_window = window;
    return ReadPattern();
  }

  // A period n makes every n-th layer global; an array flags the local layers.
  absl::Status ReadPattern() {
    const std::string key = Key("attention.sliding_window_pattern");
    const Value* value = file_.Find(key);
    if (value != nullptr && value->type == ValueType::kArray) {
      ASSIGN_OR_RETURN(c_.local_layers, file_.Bools(key));
      if (static_cast<int64_t>(c_.local_layers.size()) != c_.n_layer) {
        return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(key), " has ",
                                                       c_.local_layers.size(), " flags for ",
                                                       c_.n_layer, " layers"));
      }
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t period, file_.IntOr(key, arch_.local_period));
    if (period < 1 || period > kMaxLayers) return OutOfRange(key, period, kMaxLayers);
    for (int64_t i = 0; i < c_.n_layer; ++i) c_.local_layers.push_back(i % period < period - 1);
    return absl::OkStatus();
  }

  const File& file_;
  const Arch& arch_;
  ModelConfig c_;
};

}  // namespace

absl::StatusOr<ModelConfig> ReadConfig(const File& file) {
  ASSIGN_OR_RETURN(const std::string_view name, file.String("general.architecture"));
  const Arch* arch = FindArch(name);
  if (arch == nullptr) {
    return absl::UnimplementedError(absl::StrCat("the architecture ", Quoted(name), " of ",
                                                 Quoted(file.name()),
                                                 " is not supported; supported are ", ArchNames()));
  }
  ASSIGN_OR_RETURN(ModelConfig config, ConfigReader(file, *arch).Read());
  RETURN_IF_ERROR(BindTensors(file, config).status());
  return config;
}

}  // namespace cuvil::gguf
