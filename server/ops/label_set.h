// A closed set of label values. What is not in it becomes "other", so that no client can make
// series.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace cuvil::ops {

class LabelSet {
 public:
  LabelSet(std::vector<std::string> values) : values_(std::move(values)) {
    std::erase(values_, "other");
    std::sort(values_.begin(), values_.end());
    values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
    values_.emplace_back("other");
  }

  // Of the value, or of "other".
  size_t Index(std::string_view value) const {
    const auto end = values_.end() - 1;
    const auto at = std::lower_bound(values_.begin(), end, value);
    return static_cast<size_t>((at != end && *at == value ? at : end) - values_.begin());
  }
  const std::string& operator[](size_t index) const { return values_[index]; }
  size_t size() const { return values_.size(); }

 private:
  std::vector<std::string> values_;  // sorted, then "other"
};

}  // namespace cuvil::ops
