// Tokens of the text form. A Lexer borrows its text, which must outlive it and every token.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cuvil::ir {

enum class TokenKind {
  kEnd,
  kError,   // text says what is wrong
  kName,    // identifier, in `text`
  kInt,     // unsigned digits
  kFloat,   // unsigned number with '.' or an exponent
  kString,  // unescaped bytes in `string`
  kPunct,   // one of ( ) { } [ ] < > , : = @ % * + - . or the two characters ".."
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  std::string string;
  int line = 1;
  int column = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { Advance(); }

  const Token& token() const { return token_; }
  void Advance();
  // Whether whitespace or a comment stood before the current token.
  bool spaced() const { return spaced_; }

 private:
  void SkipSpace();
  void LexName();
  void LexNumber();
  void LexString();
  void Fail(std::string_view why);
  char At(size_t offset) const { return at_ + offset < text_.size() ? text_[at_ + offset] : '\0'; }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  size_t line_start_ = 0;
  bool spaced_ = false;
  Token token_;
};

}  // namespace cuvil::ir
