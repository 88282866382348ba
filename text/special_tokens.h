// Finds the tokens that are spelled out in text rather than merged from it: control tokens, where
// the text may contain them, and user-defined tokens, everywhere. Immutable once filled; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace cuvil::text {

class SpecialTokens {
 public:
  // The longest spelling accepted: finding matches costs at most this many steps a byte.
  static constexpr size_t kMaxBytes = 512;

  // `spelling` is not empty and at most kMaxBytes long. The first of two equal spellings counts.
  void Add(std::string_view spelling, int32_t id, bool control);

  struct Match {
    size_t begin = 0, end = 0;
    int32_t id = -1;
    bool control = false;
  };

  // All matches in `text`, leftmost first and longest at each place, none overlapping. A control
  // token matches only inside one of `trusted`, sorted half-open ranges of offsets.
  struct Range {
    size_t begin = 0, end = 0;
  };
  std::vector<Match> FindAll(std::string_view text, const std::vector<Range>& trusted) const;

 private:
  struct Node {
    int32_t id = -1;
    bool control = false;
  };
  static uint64_t Edge(uint32_t node, uint8_t byte) { return (uint64_t{node} << 8) | byte; }
  Match LongestAt(std::string_view text, size_t at, size_t control_end) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::array<bool, 256> starts_ = {};  // bytes that begin a spelling
};

}  // namespace cuvil::text
