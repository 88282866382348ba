#include "compiler/ir/text_lex.h"

#include "absl/strings/ascii.h"

namespace cuvil::ir {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool StartsName(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool ContinuesName(char c) { return StartsName(c) || IsDigit(c) || c == '.'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Lexer::Fail(std::string_view why) {
  token_.kind = TokenKind::kError;
  token_.text = why;
  at_ = text_.size();
}

void Lexer::SkipSpace() {
  const size_t start = at_;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    } else if (c == '/' && At(1) == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      continue;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      break;
    }
    ++at_;
  }
  spaced_ = at_ != start;
}

void Lexer::Advance() {
  if (token_.kind == TokenKind::kError) return;
  SkipSpace();
  token_ = Token{};
  token_.line = line_;
  token_.column = static_cast<int>(at_ - line_start_) + 1;
  if (at_ == text_.size()) return;
  const char c = text_[at_];
  if (StartsName(c)) return LexName();
  if (IsDigit(c)) return LexNumber();
  if (c == '"') return LexString();
  if (std::string_view("(){}[]<>,:=@%*+-.").find(c) == std::string_view::npos) {
    return Fail("unexpected character");
  }
  token_.kind = TokenKind::kPunct;
  const size_t length = c == '.' && At(1) == '.' ? 2 : 1;
  token_.text = text_.substr(at_, length);
  at_ += length;
}

void Lexer::LexName() {
  const size_t start = at_;
  while (ContinuesName(At(0))) ++at_;
  token_.kind = TokenKind::kName;
  token_.text = text_.substr(start, at_ - start);
}

void Lexer::LexNumber() {
  const size_t start = at_;
  token_.kind = TokenKind::kInt;
  while (IsDigit(At(0))) ++at_;
  // "1..8" is a range and "%3.q" a hint, so a fraction needs a digit after the point.
  if (At(0) == '.' && IsDigit(At(1))) {
    token_.kind = TokenKind::kFloat;
    ++at_;
    while (IsDigit(At(0))) ++at_;
  }
  const size_t sign = At(1) == '+' || At(1) == '-' ? 1 : 0;
  if (At(0) == 'e' && IsDigit(At(1 + sign))) {
    token_.kind = TokenKind::kFloat;
    at_ += 1 + sign;
    while (IsDigit(At(0))) ++at_;
  }
  token_.text = text_.substr(start, at_ - start);
}

void Lexer::LexString() {
  ++at_;
  std::string value;
  while (At(0) != '"') {
    if (at_ >= text_.size() || At(0) == '\n') return Fail("a string is not closed on its line");
    if (At(0) != '\\') {
      value += text_[at_++];
    } else if (At(1) == '"' || At(1) == '\\') {
      value += At(1);
      at_ += 2;
    } else if (At(1) == 'x' && HexDigit(At(2)) >= 0 && HexDigit(At(3)) >= 0) {
      value += static_cast<char>(HexDigit(At(2)) * 16 + HexDigit(At(3)));
      at_ += 4;
    } else {
      return Fail("a string has an unknown escape; use \\\", \\\\ or \\xhh");
    }
  }
  ++at_;
  token_.kind = TokenKind::kString;
  token_.string = std::move(value);
}

}  // namespace cuvil::ir
