// A stretch of a prompt and whether its author may spell control tokens in it: the template's
// author may, a message's author may not. Plain data.
#pragma once

#include <string>

namespace cuvil::text {

struct Segment {
  std::string text;
  bool trusted = false;

  friend bool operator==(const Segment&, const Segment&) = default;
};

}  // namespace cuvil::text
