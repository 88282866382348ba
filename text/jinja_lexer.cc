#include "text/jinja_lexer.h"

#include <algorithm>

#include "text/utf8.h"

namespace cuvil::text::jinja {
namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string NormalizeBreaks(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size() && status_.ok()) Next();
    if (!status_.ok()) return status_;
    Emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = TemplateError(line_, what);
  }
  void Emit(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool Looking(std::string_view what) const {
    return std::string_view(source_).substr(at_, what.size()) == what;
  }
  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }

  // The offset of the next tag of any kind from `from`, or the end.
  size_t FindTag(size_t from) const {
    for (size_t i = source_.find('{', from); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 >= source_.size()) break;
      const char next = source_[i + 1];
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.size();
  }

  // Text up to a tag that begins at `end`, as the tag's sign and kind trim it.
  void TakeText(size_t end) {
    std::string text = source_.substr(at_, end - at_);
    const char kind = end < source_.size() ? source_[end + 1] : '\0';
    const char sign = end + 2 < source_.size() ? source_[end + 2] : '\0';
    if (kind != '\0' && sign == '-') {
      while (!text.empty() && IsSpace(text.back())) text.pop_back();
    } else if ((kind == '%' || kind == '#') && sign != '+') {
      const size_t line = text.rfind('\n') + 1;  // 0 when there is no line break
      const bool blank = text.find_first_not_of(" \t\v\f", line) == std::string::npos;
      if (blank && (line > 0 || line_starting_)) text.resize(line);
    }
    if (!text.empty()) Emit(TokenKind::kText, std::move(text));
    Advance(end);
  }

  // After a tag: `minus` eats all white space, otherwise `block` eats one line break.
  void AfterTag(bool minus, bool block) {
    size_t to = at_;
    if (minus) {
      while (to < source_.size() && IsSpace(source_[to])) ++to;
    } else if (block && to < source_.size() && source_[to] == '\n') {
      ++to;
    }
    line_starting_ = to > at_ && source_[to - 1] == '\n';
    Advance(to);
  }

  void Next() {
    const size_t tag = FindTag(at_);
    TakeText(tag);
    if (at_ >= source_.size()) return;
    const char kind = source_[at_ + 1];
    at_ += 2;
    if (kind == '#') {
      Comment();
      return;
    }
    const bool output = kind == '{';
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    const size_t first = tokens_.size();
    Emit(output ? TokenKind::kOutputBegin : TokenKind::kTagBegin, "");
    const bool closed = TagTokens(output);
    if (!status_.ok()) return;
    if (!closed) {
      Fail("a tag is not closed");
      return;
    }
    const bool raw = !output && tokens_.size() == first + 3 && tokens_[first + 1].text == "raw";
    if (raw) {
      tokens_.resize(first);
      Raw();
    }
  }

  void Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      Fail("a comment is not closed");
      return;
    }
    const bool minus = end > at_ && source_[end - 1] == '-';
    Advance(end + 2);
    AfterTag(minus, true);
  }

  // Everything up to {% endraw %} is text.
  void Raw() {
    for (size_t open = source_.find("{%", at_); open != std::string::npos;
         open = source_.find("{%", open + 2)) {
      size_t i = open + 2;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      while (i < source_.size() && IsSpace(source_[i])) ++i;
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      while (i < source_.size() && IsSpace(source_[i])) ++i;
      const bool minus = i < source_.size() && source_[i] == '-';
      if (minus || (i < source_.size() && source_[i] == '+')) ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      TakeText(open);
      Advance(i + 2);
      AfterTag(minus, true);
      return;
    }
    Fail("a raw block is not closed");
  }

  // The tokens up to the tag's end, which is consumed. False when the source ends first.
  bool TagTokens(bool output) {
    const std::string_view close = output ? "}}" : "%}";
    int open = 0;  // brackets
    while (true) {
      while (at_ < source_.size() && IsSpace(source_[at_])) Advance(at_ + 1);
      if (at_ >= source_.size() || !status_.ok()) return false;
      if (open == 0) {
        const bool signed_end = (source_[at_] == '-' || (source_[at_] == '+' && !output)) &&
                                std::string_view(source_).substr(at_ + 1, 2) == close;
        if (signed_end || Looking(close)) {
          const char sign = signed_end ? source_[at_] : '\0';
          Emit(output ? TokenKind::kOutputEnd : TokenKind::kTagEnd, "");
          Advance(at_ + (signed_end ? 3 : 2));
          AfterTag(sign == '-', !output && sign != '+');
          return true;
        }
      }
      OneToken(&open);
    }
  }

  void OneToken(int* open) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') {
      StringToken(c);
    } else if (IsDigit(c)) {
      NumberToken();
    } else if (IsNameStart(c)) {
      size_t end = at_;
      while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
      Emit(TokenKind::kName, source_.substr(at_, end - at_));
      at_ = end;
    } else {
      OperatorToken(open);
    }
  }

  void OperatorToken(int* open) {
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (!Looking(two)) continue;
      Emit(TokenKind::kOperator, std::string(two));
      at_ += 2;
      return;
    }
    const char c = source_[at_];
    if (std::string_view("+-*/%~<>=()[]{},:.|").find(c) == std::string_view::npos) {
      Fail("a tag holds a character that no expression has");
      return;
    }
    if (c == '(' || c == '[' || c == '{') ++*open;
    if (c == ')' || c == ']' || c == '}') *open = std::max(0, *open - 1);
    Emit(TokenKind::kOperator, std::string(1, c));
    ++at_;
  }

  void NumberToken() {
    size_t end = at_;
    bool is_float = false;
    const auto digits = [&] {
      while (end < source_.size() && (IsDigit(source_[end]) || source_[end] == '_')) ++end;
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && IsDigit(source_[i]); };
    digits();
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        is_float = true;
        end += 1 + sign;
        digits();
      }
    }
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Emit(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    at_ = end;
  }

  void StringToken(char quote) {
    std::string value;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = Escape(i + 1, &value);
      } else {
        value.push_back(source_[i++]);
      }
    }
    if (i >= source_.size()) {
      Fail("a string is not closed");
      return;
    }
    Emit(TokenKind::kString, std::move(value));
    Advance(i + 1);
  }

  // Reads the escape whose letter is at `i`; returns the offset after it.
  size_t Escape(size_t i, std::string* out) {
    constexpr std::string_view kLetters = "ntrbfav0\\'\"";
    constexpr std::string_view kValues = std::string_view("\n\t\r\b\f\a\v\0\\'\"", 11);
    const char c = source_[i];
    if (c == '\n') return i + 1;  // a line continued
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      out->push_back(kValues[known]);
      return i + 1;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    size_t read = 0;
    for (; read < digits && i + 1 + read < source_.size(); ++read) {
      const std::string_view hex = "0123456789abcdef";
      const size_t value = hex.find(static_cast<char>(source_[i + 1 + read] | 0x20));
      if (value == std::string_view::npos) break;
      code = code * 16 + static_cast<uint32_t>(value);
    }
    if (digits != 0 && read == digits) {
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        Fail("a string has an escape that is no character");
      } else {
        AppendUtf8(code, out);
      }
      return i + 1 + digits;
    }
    out->push_back('\\');  // Python keeps what it does not know
    return i;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether what precedes at_ ends a line
  std::vector<Token> tokens_;
  absl::Status status_;
};

}  // namespace

absl::Status TemplateError(int line, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("chat template, line ", line, ": ", std::string(what)));
}

absl::StatusOr<std::vector<Token>> Lex(std::string_view source) {
  return Lexer(NormalizeBreaks(source)).Run();
}

}  // namespace cuvil::text::jinja
