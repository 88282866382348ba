// What a model file says about its vocabulary. Plain data: whoever reads the model file fills it,
// Tokenizer::Create checks it, nobody else interprets it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cuvil::text {

enum class VocabKind {
  kBpe,  // byte-level BPE, GGUF "gpt2"
  kSpm,  // SentencePiece BPE with scores and byte fallback, GGUF "llama"
};

// The numbers are GGUF's.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct VocabSpec {
  VocabKind kind = VocabKind::kBpe;
  std::string pre;                  // the pre-tokenizer as GGUF spells it: "smollm", "qwen2", ...
  std::vector<std::string> tokens;  // by id
  std::vector<float> scores;        // by id; needed by kSpm
  std::vector<TokenType> types;     // by id; empty means all normal
  std::vector<std::string> merges;  // "left right", best first; needed by kBpe
  // Ids of special tokens; -1 when the model has none.
  int64_t bos = -1, eos = -1, unk = -1, pad = -1, eot = -1;
  std::vector<int64_t> extra_eog;  // more ids that end a generation
  // What the model asks for; the caller turns them into EncodeOptions.
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = true;           // kSpm only
  bool remove_extra_whitespaces = false;  // kSpm only
  std::string chat_template;
};

// Whether a file that does not say add_bos means it: the habit of the formats' writers.
bool ImpliesBos(VocabKind kind, std::string_view pre);

}  // namespace cuvil::text
