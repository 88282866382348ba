#include "compiler/import/gguf/vocab.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace cuvil::gguf {
namespace {

constexpr char kPrefix[] = "tokenizer.ggml.";

// Control tokens that end a turn in the public chat formats, whether or not the metadata says so.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",      "<|im_end|>",         "<|end|>",
    "<end_of_turn>",   "<|endoftext|>",      "<|eom_id|>",
    "<|end_of_text|>", "<end_of_utterance>", "<EOT>",
};

std::string Key(const char* suffix) { return absl::StrCat(kPrefix, suffix); }

absl::StatusOr<text::VocabKind> ReadKind(const File& file) {
  ASSIGN_OR_RETURN(const std::string_view model, file.String(Key("model")));
  if (model == "gpt2") return text::VocabKind::kBpe;
  if (model == "llama") return text::VocabKind::kSpm;
  return absl::UnimplementedError(
      absl::StrCat("the tokenizer model ", Quoted(model), " of ", Quoted(file.name()),
                   " is not supported; supported are gpt2 (byte-level BPE) and llama (SPM)"));
}

absl::StatusOr<int64_t> ReadId(const File& file, const char* suffix, size_t tokens,
                               int64_t fallback = -1) {
  if (!file.Has(Key(suffix))) return static_cast<uint64_t>(fallback) < tokens ? fallback : -1;
  ASSIGN_OR_RETURN(const int64_t id, file.Int(Key(suffix)));
  // Writers spell "none" as -1, which an unsigned field stores as 2^32 - 1.
  if (id == -1 || id == 0xffffffff) return -1;
  if (id < 0 || static_cast<uint64_t>(id) >= tokens) {
    return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(Key(suffix)), " is ", id,
                                                   " but there are ", tokens, " tokens"));
  }
  return id;
}

absl::Status CheckLength(const char* suffix, size_t got, size_t tokens) {
  if (got == tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(Key(suffix)), " has ", got,
                                                 " entries for ", tokens, " tokens"));
}

absl::Status ReadLists(const File& file, text::VocabSpec* out) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file.Strings(Key("tokens")));
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", Quoted(Key("tokens")), " is empty; a vocabulary has tokens"));
  }
  out->tokens.assign(tokens.begin(), tokens.end());
  if (file.Has(Key("scores"))) {
    ASSIGN_OR_RETURN(const std::vector<double> scores, file.Floats(Key("scores")));
    RETURN_IF_ERROR(CheckLength("scores", scores.size(), tokens.size()));
    out->scores.assign(scores.begin(), scores.end());
  }
  if (file.Has(Key("token_type"))) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.Ints(Key("token_type")));
    RETURN_IF_ERROR(CheckLength("token_type", types.size(), tokens.size()));
    for (const int64_t type : types) {
      if (type < 1 || type > 6) {
        return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(Key("token_type")),
                                                       " holds ", type, "; types are 1 to 6"));
      }
      out->types.push_back(static_cast<text::TokenType>(type));
    }
  }
  if (file.Has(Key("merges"))) {
    ASSIGN_OR_RETURN(const std::vector<std::string_view> merges, file.Strings(Key("merges")));
    out->merges.assign(merges.begin(), merges.end());
  }
  return absl::OkStatus();
}

absl::Status ReadSpecialIds(const File& file, text::VocabSpec* out) {
  const size_t n = out->tokens.size();
  // SentencePiece's own ids, which early writers left unsaid.
  const bool spm = out->kind == text::VocabKind::kSpm;
  ASSIGN_OR_RETURN(out->bos, ReadId(file, "bos_token_id", n, spm ? 1 : -1));
  ASSIGN_OR_RETURN(out->eos, ReadId(file, "eos_token_id", n, spm ? 2 : -1));
  ASSIGN_OR_RETURN(out->unk, ReadId(file, "unknown_token_id", n, spm ? 0 : -1));
  ASSIGN_OR_RETURN(out->pad, ReadId(file, "padding_token_id", n));
  ASSIGN_OR_RETURN(out->eot, ReadId(file, "eot_token_id", n));
  ASSIGN_OR_RETURN(const int64_t eom, ReadId(file, "eom_token_id", n));
  if (eom >= 0) out->extra_eog.push_back(eom);
  for (size_t i = 0; i < out->types.size(); ++i) {
    if (out->types[i] != text::TokenType::kControl) continue;
    const int64_t id = static_cast<int64_t>(i);
    if (id == out->eos || id == out->eot || id == eom) continue;
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), out->tokens[i]) !=
        std::end(kEndTexts)) {
      out->extra_eog.push_back(id);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<text::VocabSpec> ReadVocab(const File& file) {
  text::VocabSpec out;
  ASSIGN_OR_RETURN(out.kind, ReadKind(file));
  ASSIGN_OR_RETURN(const std::string_view pre, file.StringOr(Key("pre"), ""));
  out.pre = std::string(pre);
  RETURN_IF_ERROR(ReadLists(file, &out));
  RETURN_IF_ERROR(ReadSpecialIds(file, &out));
  ASSIGN_OR_RETURN(out.add_bos,
                   file.BoolOr(Key("add_bos_token"), text::ImpliesBos(out.kind, out.pre)));
  ASSIGN_OR_RETURN(out.add_eos, file.BoolOr(Key("add_eos_token"), false));
  ASSIGN_OR_RETURN(out.add_space_prefix, file.BoolOr(Key("add_space_prefix"), true));
  ASSIGN_OR_RETURN(out.remove_extra_whitespaces,
                   file.BoolOr(Key("remove_extra_whitespaces"), false));
  ASSIGN_OR_RETURN(const std::string_view chat, file.StringOr("tokenizer.chat_template", ""));
  out.chat_template = std::string(chat);
  return out;
}

}  // namespace cuvil::gguf
