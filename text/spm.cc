#include "text/spm.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "text/utf8.h"

namespace cuvil::text {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Control, unknown and byte tokens are never merged from text.
bool IsPiece(const VocabSpec& spec, size_t id) {
  if (spec.types.empty()) return true;
  const TokenType type = spec.types[id];
  return type == TokenType::kNormal || type == TokenType::kUserDefined ||
         type == TokenType::kUnused;
}

}  // namespace

std::string SpmDecode(std::string_view piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const size_t space = std::min(piece.find(kSpmSpace, at), piece.size());
    out.append(piece.substr(at, space - at));
    if (space < piece.size()) out.push_back(' ');
    at = space + kSpmSpace.size();
  }
  return out;
}

int SpmByte(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  const int high = HexDigit(piece[3]);
  const int low = HexDigit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

absl::StatusOr<SpmModel> SpmModel::Create(const VocabSpec& spec) {
  if (spec.scores.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the model's tokenizer has ", spec.scores.size(),
                                                   " scores for ", spec.tokens.size(),
                                                   " tokens; it needs one each"));
  }
  SpmModel model;
  model.bytes_.fill(-1);
  model.unknown_ = static_cast<int32_t>(spec.unk);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (std::isnan(spec.scores[id])) {
      return absl::InvalidArgumentError(
          absl::StrCat("the score of token ", id, " of the model's tokenizer is not a number"));
    }
    const std::string_view text = spec.tokens[id];
    if (!spec.types.empty() && spec.types[id] == TokenType::kByte) {
      const int byte = SpmByte(text);
      if (byte >= 0) model.bytes_[byte] = static_cast<int32_t>(id);
    }
    if (!IsPiece(spec, id)) continue;
    model.pieces_.try_emplace(text, static_cast<int32_t>(id));
    model.longest_ = std::max(model.longest_, text.size());
  }
  model.RankScores(spec);
  return model;
}

void SpmModel::RankScores(const VocabSpec& spec) {
  std::vector<int32_t> order(spec.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return spec.scores[a] > spec.scores[b]; });
  ranks_.resize(order.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && spec.scores[order[i]] != spec.scores[order[i - 1]]) ++rank;
    ranks_[order[i]] = rank;
  }
}

void SpmModel::Encode(std::string_view text, bool prefix, std::vector<int32_t>* ids,
                      MergeWork* work) const {
  std::string escaped(prefix ? kSpmSpace : std::string_view());
  escaped.reserve(text.size() + 8);
  for (const char c : text) {
    if (c == ' ') {
      escaped.append(kSpmSpace);
    } else {
      escaped.push_back(c);
    }
  }
  Merger merger;
  auto& symbols = merger.symbols();
  const std::string_view all = escaped;
  for (size_t at = 0; at < all.size();) {
    const int length = DecodeUtf8(all, at).length;
    const auto found = pieces_.find(all.substr(at, length));
    const int32_t id = found == pieces_.end() ? -1 : found->second;
    symbols.push_back({id, static_cast<uint32_t>(at), static_cast<uint32_t>(length)});
    at += length;
  }
  const auto lookup = [&](const Merger::Symbol& left,
                          const Merger::Symbol& right) -> std::optional<MergeResult> {
    const size_t size = size_t{left.size} + right.size;
    if (size > longest_) return std::nullopt;
    const auto found = pieces_.find(all.substr(left.begin, size));
    if (found == pieces_.end()) return std::nullopt;
    return MergeResult{ranks_[found->second], found->second};
  };
  merger.Merge(lookup, work);
  for (const Merger::Symbol& symbol : symbols) {
    if (symbol.id >= 0) {
      ids->push_back(symbol.id);
    } else {
      EmitUnknown(all.substr(symbol.begin, symbol.size), ids);
    }
  }
}

void SpmModel::EmitUnknown(std::string_view text, std::vector<int32_t>* ids) const {
  const bool spellable = std::all_of(text.begin(), text.end(),
                                     [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; });
  if (spellable) {
    for (const char c : text) ids->push_back(bytes_[static_cast<uint8_t>(c)]);
  } else if (unknown_ >= 0) {
    ids->push_back(unknown_);
  }
}

}  // namespace cuvil::text
