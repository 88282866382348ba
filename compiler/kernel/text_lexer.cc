#include "compiler/kernel/text_lexer.h"

#include "base/status.h"
#include "compiler/kernel/verify.h"

namespace cuvil::kernel {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordChar(char c) { return IsWordStart(c) || IsDigit(c) || c == '.' || c == ':' || c == '-'; }

}  // namespace

absl::Status TextError(int line, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("kernel text line ", line, ": ", why));
}

template <typename F>
std::string Lexer::Take(F keep) {
  const size_t begin = at_;
  while (at_ < s_.size() && keep(s_[at_])) ++at_;
  return std::string(s_.substr(begin, at_ - begin));
}

void Lexer::SkipSpace() {
  while (at_ < s_.size()) {
    const char c = s_[at_];
    if (c == '/' && s_.substr(at_).starts_with("//")) {
      while (at_ < s_.size() && s_[at_] != '\n') ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      line_ += c == '\n';
      ++at_;
    } else {
      return;
    }
  }
}

absl::StatusOr<Token> Lexer::Next() {
  SkipSpace();
  Token t;
  t.line = line_;
  if (at_ >= s_.size()) return t;
  const char c = s_[at_];
  if (c == '"') return ReadString();
  if (c == '%') return ReadValue();
  if (IsWordStart(c)) {
    t.kind = Token::kWord;
    t.text = Take(IsWordChar);
    return t;
  }
  if (IsDigit(c) || c == '-') {
    t.kind = Token::kNumber;
    t.text = Take([](char x) { return IsWordChar(x) || x == '+'; });
    return t;
  }
  t.kind = Token::kPunct;
  t.text = c;
  ++at_;
  return t;
}

absl::StatusOr<Token> Lexer::ReadValue() {
  Token t{.kind = Token::kValue, .line = line_};
  ++at_;
  const std::string digits = Take(IsDigit);
  if (!ReadNumber(digits, &t.id) || t.id >= kValuesMax) {
    return TextError(line_, absl::StrCat("value number '", digits, "' is not below ", kValuesMax));
  }
  return t;
}

absl::StatusOr<Token> Lexer::ReadString() {
  Token t{.kind = Token::kString, .line = line_};
  for (++at_; at_ < s_.size() && s_[at_] != '"'; ++at_) {
    if (s_[at_] == '\n') break;
    if (s_[at_] != '\\') {
      t.text += s_[at_];
      continue;
    }
    if (++at_ >= s_.size()) break;
    if (s_[at_] == 'x' && at_ + 2 < s_.size()) {
      uint8_t byte = 0;
      const auto result = std::from_chars(s_.data() + at_ + 1, s_.data() + at_ + 3, byte, 16);
      if (result.ptr != s_.data() + at_ + 3) return TextError(line_, "bad \\x in a name");
      t.text += static_cast<char>(byte);
      at_ += 2;
    } else if (s_[at_] == '"' || s_[at_] == '\\') {
      t.text += s_[at_];
    } else {
      return TextError(line_, "unknown escape in a name");
    }
  }
  if (at_ >= s_.size() || s_[at_] != '"') return TextError(line_, "name without closing quote");
  ++at_;
  return t;
}

}  // namespace cuvil::kernel
