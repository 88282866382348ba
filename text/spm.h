// SentencePiece BPE over one vocabulary: characters merged by score, what is left over spelled in
// byte tokens. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "text/merge.h"
#include "text/vocab.h"

namespace cuvil::text {

class SpmModel {
 public:
  // Keeps views into `spec`, which must outlive the model. Scores are needed, one a token, and
  // none of them NaN.
  static absl::StatusOr<SpmModel> Create(const VocabSpec& spec);

  // Appends the ids of `text`, valid UTF-8 of less than 512 MiB, as it stands: spaces become
  // U+2581, with one more in front when `prefix` is set. A character that neither a token nor byte
  // tokens stand for becomes the unknown token, or nothing when the vocabulary has none.
  void Encode(std::string_view text, bool prefix, std::vector<int32_t>* ids, MergeWork* work) const;

 private:
  SpmModel() = default;
  void RankScores(const VocabSpec& spec);
  void EmitUnknown(std::string_view text, std::vector<int32_t>* ids) const;

  absl::flat_hash_map<std::string_view, int32_t> pieces_;
  std::vector<uint32_t> ranks_;          // by id; 0 for the highest score, equal scores share one
  std::array<int32_t, 256> bytes_ = {};  // -1 where there is no byte token
  size_t longest_ = 0;  // of any piece, in bytes: longer text is looked up no further
  int32_t unknown_ = -1;
};

// The character that stands for a space: U+2581.
inline constexpr std::string_view kSpmSpace = "\xE2\x96\x81";

// The bytes a piece stands for: its text with U+2581 as spaces.
std::string SpmDecode(std::string_view piece);

// The byte that a byte token such as "<0x0A>" stands for; -1 when the text is not of that form.
int SpmByte(std::string_view piece);

}  // namespace cuvil::text
