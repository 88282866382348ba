// Cuts a template into text and the tokens inside its tags, with Jinja's whitespace control as chat
// templates use it: trim_blocks and lstrip_blocks on, one line break at the end dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cuvil::text::jinja {

enum class TokenKind {
  kText,
  kOutputBegin,
  kOutputEnd,
  kTagBegin,
  kTagEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of strings: the value
  int line = 0;
};

// The last token is kEnd. InvalidArgument names the line.
absl::StatusOr<std::vector<Token>> Lex(std::string_view source);

// The error for something wrong with the template at a line.
absl::Status TemplateError(int line, std::string_view what);

}  // namespace cuvil::text::jinja
