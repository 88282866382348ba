#include "text/special_tokens.h"

#include "base/status.h"

namespace cuvil::text {

void SpecialTokens::Add(std::string_view spelling, int32_t id, bool control) {
  CUVIL_CHECK(!spelling.empty() && spelling.size() <= kMaxBytes, "checked by Tokenizer::Create");
  starts_[static_cast<uint8_t>(spelling[0])] = true;
  uint32_t node = 0;
  for (const char c : spelling) {
    const auto [edge, added] = edges_.try_emplace(Edge(node, static_cast<uint8_t>(c)),
                                                  static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = edge->second;
  }
  if (nodes_[node].id < 0) nodes_[node] = {id, control};
}

// Control tokens must end by control_end.
SpecialTokens::Match SpecialTokens::LongestAt(std::string_view text, size_t at,
                                              size_t control_end) const {
  Match best;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(Edge(node, static_cast<uint8_t>(text[i])));
    if (edge == edges_.end()) break;
    node = edge->second;
    const Node& here = nodes_[node];
    if (here.id < 0 || (here.control && i + 1 > control_end)) continue;
    best = {at, i + 1, here.id, here.control};
  }
  return best;
}

std::vector<SpecialTokens::Match> SpecialTokens::FindAll(std::string_view text,
                                                         const std::vector<Range>& trusted) const {
  std::vector<Match> matches;
  size_t range = 0;
  for (size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    while (range < trusted.size() && trusted[range].end <= at) ++range;
    const bool inside = range < trusted.size() && trusted[range].begin <= at;
    const Match match = LongestAt(text, at, inside ? trusted[range].end : 0);
    if (match.id < 0) {
      ++at;
      continue;
    }
    matches.push_back(match);
    at = match.end;
  }
  return matches;
}

}  // namespace cuvil::text
