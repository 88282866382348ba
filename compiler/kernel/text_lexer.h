// Tokens of kernel text, for the parser. Lives for one Parse call.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cuvil::kernel {

struct Token {
  enum Kind { kEnd, kWord, kString, kNumber, kValue, kPunct } kind = kEnd;
  std::string text;  // word, unescaped string, number, or the punctuation character
  uint32_t id = 0;   // value
  int line = 1;
};

// InvalidArgument naming the line.
absl::Status TextError(int line, const std::string& why);

// True when all of `s` is one number of type T.
template <typename T>
bool ReadNumber(std::string_view s, T* out) {
  const auto result = std::from_chars(s.data(), s.data() + s.size(), *out);
  return result.ec == std::errc() && result.ptr == s.data() + s.size();
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : s_(text) {}

  // The next token; kEnd at the end of the text, and again after it.
  absl::StatusOr<Token> Next();

 private:
  template <typename F>
  std::string Take(F keep);
  void SkipSpace();
  absl::StatusOr<Token> ReadValue();
  absl::StatusOr<Token> ReadString();

  std::string_view s_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace cuvil::kernel
