// Streams the text of generated tokens: whole characters only, and never a part of a stop string.
// One per generated sequence; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace cuvil::text {

class Detokenizer {
 public:
  // `stop` strings are UTF-8; empty ones are ignored (the caller refuses them where it should).
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop);

  struct Piece {
    std::string text;      // valid UTF-8
    bool stopped = false;  // a stop string matched: `text` ends before it and nothing follows
    std::string stop;      // the one that did, the first time it is reported
  };

  // The text that a token makes certain: what may still be the start of a character or of a stop
  // string is held back. Bytes that can no longer become valid UTF-8 come out as U+FFFD. After a
  // stop every call returns nothing but stopped. Without `may_stop`, a stop string that ends in
  // what this token adds is text like any other.
  Piece Push(int32_t token, bool may_stop = true);

  // The rest, at the end of a generation.
  Piece Flush();

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // of Knuth, Morris and Pratt
    size_t matched = 0;            // how much of text the stream ends with
  };

  void TakeCharacters(bool all);
  Piece Release(bool all, bool may_stop);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Stop> stops_;
  std::string bytes_;   // an unfinished character
  std::string held_;    // characters not yet released
  size_t scanned_ = 0;  // how far of held_ the stop strings have been matched
  bool stopped_ = false;
};

}  // namespace cuvil::text
