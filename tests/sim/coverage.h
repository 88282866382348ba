// Coverage: how often the simulated worlds reached what they are there to test. A count that stays
// zero over all seeds fails the run: an oracle that never looked proves nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace cuvil::sim {

class Coverage {
 public:
  void Count(std::string_view what, int64_t n = 1) { counts_[std::string(what)] += n; }
  int64_t count(std::string_view what) const {
    const auto it = counts_.find(what);
    return it == counts_.end() ? 0 : it->second;
  }
  const std::map<std::string, int64_t, std::less<>>& counts() const { return counts_; }

 private:
  std::map<std::string, int64_t, std::less<>> counts_;
};

// Everything a big run must have met.
inline constexpr std::string_view kMustHappen[] = {
    "deadline hopeless", "abort waiting",
    "abort preempted",   "abort running",
    "abort in flight",   "abort unknown",
    "admitted",          "all rows",
    "choices after",     "commit failed",
    "cached tokens",     "deadline running",
    "deadline waiting",  "drain",
    "drop cached",       "end aborted",
    "end deadline",      "end error",
    "end finished",      "end length",
    "evictions",         "guaranteed",
    "long prompt",       "oldest first",
    "opportunistic",     "preemptions",
    "refused drain",     "refused invalid",
    "refused queue",     "resumed from cache",
    "row error",         "slow step",
    "step error",        "swap",
    "trimmed pages",     "trimmed hit",
    "upgraded",
};

}  // namespace cuvil::sim
