// Cuts text into the words that byte-level BPE merges within. Each GGUF pre-tokenizer name stands
// for a sequence of splits that its model was trained with; the splits are hand-written scanners,
// equal to the published regular expressions, that pass over the text once. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/split.h"

namespace cuvil::text {

class PreTokenizer {
 public:
  // InvalidArgument names an unknown `name` and lists the known ones.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name);

  // Appends the end offset of each word of `text`, ascending, the last one text.size(). `text` is
  // valid UTF-8 of less than 4 GiB. Linear in its length.
  void Split(std::string_view text, std::vector<uint32_t>* ends) const;

  // Whether a word that is a token as a whole is taken without merging.
  bool ignore_merges() const { return ignore_merges_; }

 private:
  std::vector<SplitFn> stages_;
  bool ignore_merges_ = false;
};

}  // namespace cuvil::text
