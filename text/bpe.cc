#include "text/bpe.h"

#include <memory>
#include <string>

#include "text/byte_level.h"

namespace cuvil::text {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// Tokens that merging may produce; control tokens are only ever spelled out.
bool IsMergeable(const VocabSpec& spec, size_t id) {
  if (spec.types.empty()) return true;
  const TokenType type = spec.types[id];
  return type != TokenType::kControl && type != TokenType::kUnknown;
}

}  // namespace

int32_t BpeModel::Intern(std::string_view text) {
  const auto found = symbols_.find(text);
  if (found != symbols_.end()) return found->second;
  extra_.push_back(std::make_unique<std::string>(text));
  const int32_t id = vocab_size_ + static_cast<int32_t>(extra_.size()) - 1;
  symbols_.emplace(*extra_.back(), id);
  return id;
}

absl::StatusOr<BpeModel> BpeModel::Create(const VocabSpec& spec) {
  ASSIGN_OR_RETURN(PreTokenizer pre, PreTokenizer::Create(spec.pre));
  BpeModel model(std::move(pre));
  model.vocab_size_ = static_cast<int32_t>(spec.tokens.size());
  model.symbols_.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!IsMergeable(spec, id)) continue;
    model.symbols_.insert_or_assign(std::string_view(spec.tokens[id]), static_cast<int32_t>(id));
  }
  for (int byte = 0; byte < 256; ++byte) {
    model.bytes_[byte] = model.Intern(ByteLevelChar(static_cast<uint8_t>(byte)));
  }
  RETURN_IF_ERROR(model.AddMerges(spec));
  return model;
}

absl::Status BpeModel::AddMerges(const VocabSpec& spec) {
  merges_.reserve(spec.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    // A symbol may begin with a space but holds none further on.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "merge ", rank, " of the model's tokenizer is not two symbols with a space between"));
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    joined.assign(left);
    joined.append(right);
    const uint64_t key = PairKey(Intern(left), Intern(right));
    merges_.try_emplace(key, MergeResult{static_cast<uint32_t>(rank), Intern(joined)});
  }
  return absl::OkStatus();
}

void BpeModel::Encode(std::string_view text, std::vector<int32_t>* ids, MergeWork* work) const {
  std::vector<uint32_t> ends;
  pre_.Split(text, &ends);
  Merger merger;
  size_t begin = 0;
  for (const uint32_t end : ends) {
    EncodeWord(text.substr(begin, end - begin), &merger, ids, work);
    begin = end;
  }
}

bool BpeModel::TakeWhole(std::string_view word, std::vector<int32_t>* ids) const {
  std::string spelled;
  for (const char c : word) spelled.append(ByteLevelChar(static_cast<uint8_t>(c)));
  const auto found = symbols_.find(spelled);
  if (found == symbols_.end() || found->second >= vocab_size_) return false;
  ids->push_back(found->second);
  return true;
}

void BpeModel::EncodeWord(std::string_view word, Merger* merger, std::vector<int32_t>* ids,
                          MergeWork* work) const {
  if (pre_.ignore_merges() && TakeWhole(word, ids)) return;
  auto& symbols = merger->symbols();
  symbols.clear();
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.push_back({bytes_[static_cast<uint8_t>(word[i])], static_cast<uint32_t>(i), 1});
  }
  const auto lookup = [this](const Merger::Symbol& left,
                             const Merger::Symbol& right) -> std::optional<MergeResult> {
    const auto found = merges_.find(PairKey(left.id, right.id));
    if (found == merges_.end()) return std::nullopt;
    return found->second;
  };
  merger->Merge(lookup, work);
  for (const Merger::Symbol& symbol : symbols) {
    if (symbol.id < vocab_size_) {
      ids->push_back(symbol.id);
      continue;
    }
    // No token for this symbol: its bytes, as far as they have tokens.
    for (const char c : word.substr(symbol.begin, symbol.size)) {
      const int32_t id = bytes_[static_cast<uint8_t>(c)];
      if (id < vocab_size_) ids->push_back(id);
    }
  }
}

}  // namespace cuvil::text
