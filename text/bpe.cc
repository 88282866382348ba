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
  const auto found = symbols_.find(Sv(text));
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
    const auto [_, fresh] = model.symbols_.insert_or_assign(absl::string_view(spec.tokens[id]),
                                                            static_cast<int32_t>(id));
    model.distinct_ &= fresh;
  }
  for (int byte = 0; byte < 256; ++byte) {
    model.bytes_[byte] = model.Intern(ByteLevelChar(static_cast<uint8_t>(byte)));
  }
  RETURN_IF_ERROR(model.AddMerges(spec));
  return model;
}

absl::Status BpeModel::AddMerges(const VocabSpec& spec) {
  // Symbols lie all over a table that no cache holds: their places are fetched this far ahead.
  constexpr size_t kAhead = 8;
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(spec.merges.size());
  for (const std::string_view merge : spec.merges) {
    // A symbol may begin with a space but holds none further on.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("merge ", pairs.size(),
                       " of the model's tokenizer is not two symbols with a space between"));
    }
    pairs.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  merges_.reserve(pairs.size());
  std::string joined;
  int32_t result = -1;
  for (size_t rank = 0; rank < pairs.size(); ++rank) {
    if (rank + kAhead < pairs.size()) {
      symbols_.prefetch(Sv(pairs[rank + kAhead].first));
      symbols_.prefetch(Sv(pairs[rank + kAhead].second));
    }
    const auto [left, right] = pairs[rank];
    joined.assign(left);
    joined.append(right);
    const uint64_t key = PairKey(Intern(left), Intern(right));
    // Where each merge made the next token, which is what training does, nothing is looked up.
    const bool next = distinct_ && result >= 0 && result + 1 < vocab_size_ &&
                      IsMergeable(spec, result + 1) && spec.tokens[result + 1] == joined;
    result = next ? result + 1 : Intern(joined);
    merges_.try_emplace(key, MergeResult{static_cast<uint32_t>(rank), result});
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
