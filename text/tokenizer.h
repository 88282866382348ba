// Text to token ids and back, for one vocabulary. Immutable after Create; any thread.
//
// Two rules hold whatever the input: the cost is n log n in the length of the text, and text turns
// into a control token only where the caller says it may (parse_special, or a trusted segment).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "text/bpe.h"
#include "text/segment.h"
#include "text/special_tokens.h"
#include "text/spm.h"
#include "text/vocab.h"

namespace cuvil::text {

class Tokenizer {
 public:
  // Checks `spec`; InvalidArgument names what is wrong with it.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Create(VocabSpec spec);

  // Sizes above this are refused: offsets are 32 bits wide, and a space becomes three bytes.
  static constexpr size_t kMaxTextBytes = size_t{256} << 20;

  struct EncodeOptions {
    bool parse_special = false;  // whether control tokens spelled in the text become ids
    bool add_bos = false;        // prepend the token that begins a text, if the vocabulary has one
    bool add_eos = false;        // append the one that ends it
  };

  // InvalidArgument when `utf8` is not UTF-8, naming the byte offset, or is too long.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8,
                                              const EncodeOptions& options) const;

  // Encodes the segments as the one text they form. Control tokens are recognised in trusted
  // stretches only; parse_special is not looked at.
  absl::StatusOr<std::vector<int32_t>> EncodeSegments(absl::Span<const Segment> segments,
                                                      const EncodeOptions& options) const;

  // The bytes a token stands for, which need not be whole characters. Empty for an id outside the
  // vocabulary and, unless render_special, for control tokens.
  std::string TokenBytes(int32_t id, bool render_special = false) const;

  // The bytes of all, without the space that encoding put in front.
  std::string Decode(absl::Span<const int32_t> ids, bool render_special = false) const;

  int vocab_size() const { return static_cast<int>(spec_.tokens.size()); }
  bool IsEndOfGeneration(int32_t id) const { return eog_.contains(id); }
  bool IsControl(int32_t id) const;
  // The id spelled exactly so, special or not; -1 when there is none.
  int32_t FindToken(std::string_view text) const;
  const VocabSpec& spec() const { return spec_; }

  // As Encode, and adds up the work done. For tests of the cost.
  absl::StatusOr<std::vector<int32_t>> EncodeCounted(std::string_view utf8,
                                                     const EncodeOptions& options,
                                                     MergeWork* work) const;

 private:
  explicit Tokenizer(VocabSpec spec) : spec_(std::move(spec)) {}
  absl::Status AddSpecialTokens();
  void FindEndTokens();
  TokenType TypeOf(int32_t id) const;
  absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text,
                                                  const std::vector<SpecialTokens::Range>& trusted,
                                                  const EncodeOptions& options,
                                                  MergeWork* work) const;
  // Where ordinary text lies: whether it starts and ends a text, as control tokens divide them.
  struct Place {
    bool starts = false;
    bool ends = false;
  };
  void EncodeOrdinary(std::string_view text, Place place, std::vector<int32_t>* ids,
                      MergeWork* work) const;

  VocabSpec spec_;
  std::variant<std::monostate, BpeModel, SpmModel> model_;
  SpecialTokens special_;
  absl::flat_hash_set<int32_t> eog_;
};

}  // namespace cuvil::text
