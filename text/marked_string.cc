#include "text/marked_string.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace cuvil::text {

bool MarkedString::any_untrusted() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return !run.trusted; });
}

void MarkedString::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted});
  }
}

void MarkedString::Append(const MarkedString& other) {
  size_t begin = 0;
  for (size_t i = 0; i < other.runs_.size(); ++i) {
    const Run run = other.runs_[i];
    Append(std::string_view(other.bytes_).substr(begin, run.end - begin), run.trusted);
    begin = run.end;
  }
}

MarkedString MarkedString::Cut(size_t begin, size_t end) const {
  MarkedString out;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    out.Append(std::string_view(bytes_).substr(begin, stop - begin), run->trusted);
    begin = stop;
  }
  return out;
}

MarkedString MarkedString::WithBytes(std::string bytes) const {
  CUVIL_CHECK(bytes.size() == bytes_.size(), "marks are per byte");
  MarkedString out = *this;
  out.bytes_ = std::move(bytes);
  return out;
}

std::vector<Segment> MarkedString::Segments() const {
  std::vector<Segment> segments;
  size_t begin = 0;
  for (const Run& run : runs_) {
    segments.push_back({bytes_.substr(begin, run.end - begin), run.trusted});
    begin = run.end;
  }
  return segments;
}

}  // namespace cuvil::text
