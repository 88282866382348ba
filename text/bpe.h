// Byte-level BPE over one vocabulary: words to token ids. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/merge.h"
#include "text/pretokenizer.h"
#include "text/vocab.h"

namespace cuvil::text {

class BpeModel {
 public:
  // Keeps views into `spec`, which must outlive the model. A merge without a space in it is an
  // InvalidArgument error.
  static absl::StatusOr<BpeModel> Create(const VocabSpec& spec);

  // Appends the ids of `text`, valid UTF-8 of less than 2 GiB. A byte that no token stands for is
  // left out: such vocabularies exist, and their own tokenizers leave it out too.
  void Encode(std::string_view text, std::vector<int32_t>* ids, MergeWork* work) const;

 private:
  explicit BpeModel(PreTokenizer pre) : pre_(std::move(pre)) {}
  int32_t Intern(std::string_view text);
  absl::Status AddMerges(const VocabSpec& spec);
  void EncodeWord(std::string_view word, Merger* merger, std::vector<int32_t>* ids,
                  MergeWork* work) const;
  bool TakeWhole(std::string_view word, std::vector<int32_t>* ids) const;

  PreTokenizer pre_;
  int32_t vocab_size_ = 0;
  bool distinct_ = true;  // no two mergeable tokens are spelled alike
  // Symbols are token ids, and ids past the vocabulary for what only merges mention.
  // Abseil's own string_view: Debian's Abseil hashes the other one through std::hash.
  absl::flat_hash_map<absl::string_view, int32_t> symbols_;
  absl::flat_hash_map<uint64_t, MergeResult> merges_;
  std::array<int32_t, 256> bytes_ = {};
  std::vector<std::unique_ptr<std::string>> extra_;  // the texts of symbols past the vocabulary
};

}  // namespace cuvil::text
