#include "text/split.h"

#include <cstdint>

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace cuvil::text {
namespace {

struct Char {
  uint32_t code = 0;
  CharClass kind = CharClass::kOther;
  int length = 0;  // 0 past the end
};

Char At(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const Utf8Char c = DecodeUtf8(text, at);
  return {c.code, ClassOf(c.code), c.length};
}

bool IsLineBreak(const Char& c) { return c.code == '\r' || c.code == '\n'; }
bool IsMark(const Char& c) { return c.kind == CharClass::kMark; }
bool IsLetterChar(const Char& c) { return IsLetter(c.kind); }
bool IsNumberChar(const Char& c) { return IsNumber(c.kind); }
bool IsLetterOrMark(const Char& c) { return IsLetter(c.kind) || IsMark(c); }
bool IsPunctuation(const Char& c) { return c.kind == CharClass::kPunctuation; }
bool IsPunctuationOrSymbol(const Char& c) {
  return c.kind == CharClass::kPunctuation || c.kind == CharClass::kSymbol;
}
// [^\s\p{L}\p{N}]
bool IsRest(const Char& c) { return !IsSpace(c.kind) && !IsLetter(c.kind) && !IsNumber(c.kind); }
// [^\s\p{L}\p{M}\p{N}]
bool IsRestNoMark(const Char& c) { return IsRest(c) && !IsMark(c); }
// [^\r\n\p{L}\p{N}]
bool IsWordLead(const Char& c) { return !IsLineBreak(c) && !IsLetter(c.kind) && !IsNumber(c.kind); }

using Predicate = bool (*)(const Char&);

// The end of the run of characters that satisfy `is`, at most `most` of them.
size_t RunEnd(std::string_view text, size_t at, Predicate is, size_t most = SIZE_MAX) {
  for (; most > 0; --most) {
    const Char c = At(text, at);
    if (c.length == 0 || !is(c)) break;
    at += c.length;
  }
  return at;
}

// A run, or 0 when it is empty.
size_t Run(std::string_view text, size_t at, Predicate is, size_t most = SIZE_MAX) {
  const size_t end = RunEnd(text, at, is, most);
  return end == at ? 0 : end;
}

// ` ?` and a run.
size_t SpaceThenRun(std::string_view text, size_t at, Predicate is) {
  return Run(text, text[at] == ' ' ? at + 1 : at, is);
}

// `\s?` and a run.
size_t AnySpaceThenRun(std::string_view text, size_t at, Predicate is) {
  const Char c = At(text, at);
  return Run(text, IsSpace(c.kind) ? at + c.length : at, is);
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// 's 't 're 've 'm 'll 'd; 0 when there is none.
size_t Contraction(std::string_view text, size_t at, bool any_case) {
  if (at + 1 >= text.size() || text[at] != '\'') return 0;
  const char first = any_case ? Lower(text[at + 1]) : text[at + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if (at + 2 >= text.size()) return 0;
  const char second = any_case ? Lower(text[at + 2]) : text[at + 2];
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? at + 3 : 0;
}

// `\s*[\r\n]+|` (with_breaks) `\s+(?!\S)|\s+` at a white-space character: one pass over the run.
size_t Spaces(std::string_view text, size_t at, bool with_breaks) {
  size_t end = at;
  size_t last_begin = at;  // where the run's last character begins
  size_t break_end = 0;
  for (Char c = At(text, end); c.length != 0 && IsSpace(c.kind); c = At(text, end)) {
    last_begin = end;
    end += c.length;
    if (IsLineBreak(c)) break_end = end;
  }
  if (with_breaks && break_end != 0) return break_end;
  if (end == text.size() || last_begin == at) return end;
  return last_begin;  // the last one goes with what follows
}

// ` ?` punctuation, then what `tail` accepts.
size_t RestThenTail(std::string_view text, size_t at, Predicate is, Predicate tail) {
  const size_t end = SpaceThenRun(text, at, is);
  return end == 0 ? 0 : RunEnd(text, end, tail);
}

// One optional character that `lead` accepts, then a run.
size_t LeadThenRun(std::string_view text, size_t at, Predicate lead, Predicate is) {
  const Char c = At(text, at);
  if (lead(c)) {
    if (const size_t end = Run(text, at + c.length, is)) return end;
  }
  return Run(text, at, is);
}

bool IsLineBreakOrSlash(const Char& c) { return IsLineBreak(c) || c.code == '/'; }

// What the Llama 3 pattern and its relatives have in common.
size_t LlamaLike(std::string_view text, size_t at, size_t most_digits, Predicate letter,
                 Predicate rest) {
  if (const size_t end = Contraction(text, at, true)) return end;
  if (const size_t end = LeadThenRun(text, at, IsWordLead, letter)) return end;
  if (const size_t end = Run(text, at, IsNumberChar, most_digits)) return end;
  if (const size_t end = RestThenTail(text, at, rest, IsLineBreak)) return end;
  return IsSpace(At(text, at).kind) ? Spaces(text, at, true) : 0;
}

bool IsUpperish(const Char& c) {  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  return (IsLetter(c.kind) && c.kind != CharClass::kLower) || IsMark(c);
}
bool IsLowerish(const Char& c) {  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  return c.kind == CharClass::kLower || c.kind == CharClass::kOtherLetter || IsMark(c);
}

// Upperish* Lowerish+, as a backtracking matcher finds it: the upper run is as long as possible and
// gives characters back only when nothing lower follows it.
size_t UpperThenLower(std::string_view text, size_t at) {
  const size_t upper_end = RunEnd(text, at, IsUpperish);
  if (const size_t end = Run(text, upper_end, IsLowerish)) return end;
  size_t found = 0;
  for (size_t i = at; i < upper_end;) {  // the last character of the run that is lowerish too
    const Char c = At(text, i);
    i += c.length;
    if (IsLowerish(c)) found = i;
  }
  return found;
}

// Upperish+ Lowerish*
size_t UpperThenMaybeLower(std::string_view text, size_t at) {
  const size_t upper_end = Run(text, at, IsUpperish);
  return upper_end == 0 ? 0 : RunEnd(text, upper_end, IsLowerish);
}

size_t CasedWord(std::string_view text, size_t at) {
  const Char lead = At(text, at);
  const bool has_lead = IsWordLead(lead);
  for (const auto match : {UpperThenLower, UpperThenMaybeLower}) {
    if (has_lead) {
      if (const size_t end = match(text, at + lead.length)) return end;
    }
    if (const size_t end = match(text, at)) return end;
  }
  return 0;
}

size_t CasedLike(std::string_view text, size_t at, size_t most_digits, bool contractions) {
  if (const size_t end = CasedWord(text, at)) {
    const size_t suffix = contractions ? Contraction(text, end, true) : 0;
    return suffix != 0 ? suffix : end;
  }
  if (const size_t end = Run(text, at, IsNumberChar, most_digits)) return end;
  if (const size_t end = RestThenTail(text, at, IsRest, IsLineBreakOrSlash)) return end;
  return IsSpace(At(text, at).kind) ? Spaces(text, at, true) : 0;
}

bool IsAsciiLetter(const Char& c) {
  return (c.code >= 'a' && c.code <= 'z') || (c.code >= 'A' && c.code <= 'Z');
}
bool IsAsciiPunctuation(const Char& c) {
  return c.code > ' ' && c.code < 0x7F && !IsAsciiLetter(c) && !(c.code >= '0' && c.code <= '9');
}
bool IsDeepSeekLead(const Char& c) {  // [^\r\n\p{L}\p{P}\p{S}]
  return !IsLineBreak(c) && !IsLetter(c.kind) && !IsPunctuationOrSymbol(c);
}
bool IsAsciiMath(const Char& c) {
  switch (c.code) {
    case '$':
    case '+':
    case '<':
    case '=':
    case '>':
    case '^':
    case '~':
    case '|':
      return true;
    default:
      return false;
  }
}
bool IsPunctuationOrMath(const Char& c) { return IsPunctuation(c) || IsAsciiMath(c); }
bool IsPunctuationMathOrTick(const Char& c) { return IsPunctuationOrMath(c) || c.code == '`'; }
bool IsAsciiDigit(const Char& c) { return c.code >= '0' && c.code <= '9'; }
bool Between(const Char& c, uint32_t low, uint32_t high) { return c.code >= low && c.code <= high; }
bool IsCjkHangul(const Char& c) {
  return Between(c, 0x4E00, 0x9FA5) || Between(c, 0x800, 0x4E00) || Between(c, 0xAC00, 0xD7FF);
}
bool IsCjkKana(const Char& c) { return Between(c, 0x4E00, 0x9FA5) || Between(c, 0x3040, 0x30FF); }
bool IsBloomWord(const Char& c) {
  if (IsSpace(c.kind)) return false;
  switch (c.code) {
    case '(':
    case ')':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case 0x2026:
    case 0x3002:
    case 0xFF0C:
    case 0x3001:
    case 0x0964:
    case 0x06D4:
    case 0x060C:
      return false;
    default:
      return true;
  }
}

}  // namespace

size_t SplitGpt2(std::string_view text, size_t at) {
  if (const size_t end = Contraction(text, at, false)) return end;
  if (const size_t end = SpaceThenRun(text, at, IsLetterChar)) return end;
  if (const size_t end = SpaceThenRun(text, at, IsNumberChar)) return end;
  if (const size_t end = SpaceThenRun(text, at, IsRest)) return end;
  return Spaces(text, at, false);
}

size_t SplitLlama3(std::string_view text, size_t at) {
  return LlamaLike(text, at, 3, IsLetterChar, IsRest);
}
size_t SplitQwen2(std::string_view text, size_t at) {
  return LlamaLike(text, at, 1, IsLetterChar, IsRest);
}
size_t SplitQwen35(std::string_view text, size_t at) {
  return LlamaLike(text, at, 1, IsLetterOrMark, IsRestNoMark);
}
size_t SplitGpt4o(std::string_view text, size_t at) { return CasedLike(text, at, 3, true); }
size_t SplitTekken(std::string_view text, size_t at) { return CasedLike(text, at, 1, false); }

size_t SplitDeepSeek3(std::string_view text, size_t at) {
  const Char c = At(text, at);
  if (IsAsciiPunctuation(c)) {
    if (const size_t end = Run(text, at + 1, IsAsciiLetter)) return end;
  }
  if (const size_t end = LeadThenRun(text, at, IsDeepSeekLead, IsLetterOrMark)) return end;
  if (const size_t end = RestThenTail(text, at, IsPunctuationOrSymbol, IsLineBreak)) return end;
  return IsSpace(c.kind) ? Spaces(text, at, true) : 0;
}

size_t SplitNumber(std::string_view text, size_t at) { return Run(text, at, IsNumberChar, 1); }
size_t SplitNumbers(std::string_view text, size_t at) { return Run(text, at, IsNumberChar); }
size_t SplitNumbersUpTo3(std::string_view text, size_t at) {
  return Run(text, at, IsNumberChar, 3);
}
size_t SplitAsciiDigits3(std::string_view text, size_t at) {
  return RunEnd(text, at, IsAsciiDigit, 3) == at + 3 ? at + 3 : 0;
}
size_t SplitPunctuation(std::string_view text, size_t at) {
  return Run(text, at, IsPunctuationOrMath);
}
size_t SplitPunctuationTick(std::string_view text, size_t at) {
  return Run(text, at, IsPunctuationMathOrTick);
}
size_t SplitLineBreak(std::string_view text, size_t at) { return Run(text, at, IsLineBreak, 1); }
size_t SplitSpaceLetters(std::string_view text, size_t at) {
  return AnySpaceThenRun(text, at, IsLetterChar);
}
size_t SplitSpacePunctuation(std::string_view text, size_t at) {
  return AnySpaceThenRun(text, at, IsPunctuation);
}
size_t SplitCjkHangul(std::string_view text, size_t at) { return Run(text, at, IsCjkHangul); }
size_t SplitCjkKana(std::string_view text, size_t at) { return Run(text, at, IsCjkKana); }
size_t SplitBloom(std::string_view text, size_t at) { return SpaceThenRun(text, at, IsBloomWord); }

}  // namespace cuvil::text
