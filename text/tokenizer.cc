#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace cuvil::text {
namespace {

using Range = SpecialTokens::Range;

// Ids are 32 bits and BPE numbers the symbols of merges after them.
constexpr size_t kMaxTokens = size_t{1} << 28;

// Control tokens that end a turn in one model family or another, though files often name only one.
constexpr std::string_view kEndSpellings[] = {
    "<|eot_id|>", "<|eom_id|>",    "<|im_end|>",    "<|end|>",           "<|return|>",
    "<|call|>",   "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",   "<|end_of_turn|>",
    "<EOT>",      "_<EOT>",        "<eos>",         "<|end_of_message|>"};

absl::Status CheckId(const char* what, int64_t id, size_t count) {
  if (id >= -1 && id < static_cast<int64_t>(count)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the model's ", what, " token id ", id,
                                                 " is outside its vocabulary of ", count));
}

absl::Status CheckSpec(const VocabSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0 || count > kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model's vocabulary has ", count, " tokens; it needs 1 to ", kMaxTokens));
  }
  if (!spec.types.empty() && spec.types.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("the model's tokenizer has ", spec.types.size(),
                                                   " token types for ", count, " tokens"));
  }
  if (spec.merges.size() > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("the model's tokenizer has ", spec.merges.size(),
                                                   " merges; at most ", kMaxTokens,
                                                   " are supported"));
  }
  RETURN_IF_ERROR(CheckId("bos", spec.bos, count));
  RETURN_IF_ERROR(CheckId("eos", spec.eos, count));
  RETURN_IF_ERROR(CheckId("unknown", spec.unk, count));
  RETURN_IF_ERROR(CheckId("padding", spec.pad, count));
  RETURN_IF_ERROR(CheckId("eot", spec.eot, count));
  for (const int64_t id : spec.extra_eog) {
    RETURN_IF_ERROR(CheckId("end-of-generation", id, count));
  }
  return absl::OkStatus();
}

// Runs of spaces to one; none at the ends of a text.
std::string CollapseSpaces(std::string_view text, bool starts, bool ends) {
  std::string out;
  for (const char c : text) {
    const bool repeated = out.empty() ? starts : out.back() == ' ';
    if (c != ' ' || !repeated) out.push_back(c);
  }
  if (ends && !out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Create(VocabSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  std::shared_ptr<Tokenizer> made(new Tokenizer(std::move(spec)));
  if (made->spec_.kind == VocabKind::kBpe) {
    ASSIGN_OR_RETURN(made->model_, BpeModel::Create(made->spec_));
  } else {
    ASSIGN_OR_RETURN(made->model_, SpmModel::Create(made->spec_));
  }
  RETURN_IF_ERROR(made->AddSpecialTokens());
  made->FindEndTokens();
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

TokenType Tokenizer::TypeOf(int32_t id) const {
  return spec_.types.empty() ? TokenType::kNormal : spec_.types[id];
}

absl::Status Tokenizer::AddSpecialTokens() {
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const TokenType type = TypeOf(id);
    // An unknown token is spelled like a control token ("<unk>") and is as little for users.
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!control && type != TokenType::kUserDefined) continue;
    std::string spelling = spec_.tokens[id];
    if (spec_.kind == VocabKind::kSpm) spelling = SpmDecode(spelling);
    if (spelling.empty()) continue;
    if (spelling.size() > SpecialTokens::kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the model's special token ", id, " is ",
                                                     spelling.size(), " bytes long; at most ",
                                                     SpecialTokens::kMaxBytes, " are supported"));
    }
    special_.Add(spelling, id, control);
  }
  return absl::OkStatus();
}

void Tokenizer::FindEndTokens() {
  for (const int64_t id : {spec_.eos, spec_.eot}) {
    if (id >= 0) eog_.insert(static_cast<int32_t>(id));
  }
  for (const int64_t id : spec_.extra_eog) {
    if (id >= 0) eog_.insert(static_cast<int32_t>(id));
  }
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (TypeOf(id) != TokenType::kControl) continue;
    const bool ends = std::find(std::begin(kEndSpellings), std::end(kEndSpellings),
                                std::string_view(spec_.tokens[id])) != std::end(kEndSpellings);
    if (ends) eog_.insert(id);
  }
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view utf8,
                                                       const EncodeOptions& options) const {
  MergeWork work;
  return EncodeCounted(utf8, options, &work);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeCounted(std::string_view utf8,
                                                              const EncodeOptions& options,
                                                              MergeWork* work) const {
  std::vector<Range> trusted;
  if (options.parse_special) trusted.push_back({0, utf8.size()});
  return EncodeText(utf8, trusted, options, work);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeSegments(absl::Span<const Segment> segments,
                                                               const EncodeOptions& options) const {
  std::string text;
  std::vector<Range> trusted;
  for (const Segment& segment : segments) {
    const size_t begin = text.size();
    if (segment.text.size() > kMaxTextBytes - std::min(kMaxTextBytes, begin)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text to tokenize is longer than ", kMaxTextBytes, " bytes"));
    }
    text.append(segment.text);
    if (!segment.trusted || segment.text.empty()) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }
  MergeWork work;
  return EncodeText(text, trusted, options, &work);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeText(std::string_view text,
                                                           const std::vector<Range>& trusted,
                                                           const EncodeOptions& options,
                                                           MergeWork* work) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the text to tokenize has ", text.size(),
                                                   " bytes; at most ", kMaxTextBytes,
                                                   " are supported"));
  }
  if (const size_t bad = FirstInvalidUtf8(text); bad != text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text to tokenize is not valid UTF-8 at byte ", bad));
  }
  std::vector<int32_t> ids;
  if (options.add_bos && spec_.bos >= 0) ids.push_back(static_cast<int32_t>(spec_.bos));
  size_t at = 0;
  bool starts = true;
  for (const SpecialTokens::Match& match : special_.FindAll(text, trusted)) {
    EncodeOrdinary(text.substr(at, match.begin - at), {starts, match.control}, &ids, work);
    ids.push_back(match.id);
    // Text after a control token starts anew; a user-defined token is part of the text around it.
    starts = match.control;
    at = match.end;
  }
  EncodeOrdinary(text.substr(at), {starts, true}, &ids, work);
  if (options.add_eos && spec_.eos >= 0) ids.push_back(static_cast<int32_t>(spec_.eos));
  return ids;
}

void Tokenizer::EncodeOrdinary(std::string_view text, Place place, std::vector<int32_t>* ids,
                               MergeWork* work) const {
  if (text.empty()) return;
  if (const auto* bpe = std::get_if<BpeModel>(&model_)) {
    bpe->Encode(text, ids, work);
    return;
  }
  std::string collapsed;
  if (spec_.remove_extra_whitespaces) {
    collapsed = CollapseSpaces(text, place.starts, place.ends);
    text = collapsed;
    if (text.empty()) return;
  }
  std::get<SpmModel>(model_).Encode(text, place.starts && spec_.add_space_prefix, ids, work);
}

bool Tokenizer::IsControl(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return false;
  const TokenType type = TypeOf(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

int32_t Tokenizer::FindToken(std::string_view text) const {
  const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), text);
  return found == spec_.tokens.end() ? -1 : static_cast<int32_t>(found - spec_.tokens.begin());
}

std::string Tokenizer::TokenBytes(int32_t id, bool render_special) const {
  if (id < 0 || id >= vocab_size()) return "";
  const std::string& text = spec_.tokens[id];
  if (IsControl(id)) return render_special ? text : "";
  const TokenType type = TypeOf(id);
  if (spec_.kind == VocabKind::kSpm) {
    const int byte = type == TokenType::kByte ? SpmByte(text) : -1;
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : SpmDecode(text);
  }
  return type == TokenType::kUserDefined ? text : ByteLevelDecode(text);
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool render_special) const {
  std::string out;
  const bool prefixed = spec_.kind == VocabKind::kSpm && spec_.add_space_prefix;
  bool starts = prefixed;  // the next text token carries the space that encoding added
  for (const int32_t id : ids) {
    std::string piece = TokenBytes(id, render_special);
    if (IsControl(id)) {
      starts = prefixed;
    } else {
      if (starts && !piece.empty() && piece[0] == ' ') piece.erase(0, 1);
      starts = false;
    }
    out.append(piece);
  }
  return out;
}

}  // namespace cuvil::text
