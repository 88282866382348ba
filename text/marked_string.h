// A string that remembers, byte for byte, whether the template's author wrote it (trusted) or it
// came with a request. Cutting and joining keep the marks. A value type; one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/segment.h"

namespace cuvil::text {

class MarkedString {
 public:
  MarkedString() = default;
  MarkedString(std::string_view bytes, bool trusted) { Append(bytes, trusted); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Whether any byte came with a request.
  bool any_untrusted() const;

  void Append(std::string_view bytes, bool trusted);
  void Append(const MarkedString& other);
  // The bytes [begin, end); begin <= end <= size().
  MarkedString Cut(size_t begin, size_t end) const;
  // The same marks over other bytes of the same number.
  MarkedString WithBytes(std::string bytes) const;
  std::vector<Segment> Segments() const;

 private:
  struct Run {
    size_t end = 0;
    bool trusted = false;
  };

  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ; ends ascend to size()
};

}  // namespace cuvil::text
