// The single splits that pre-tokenizers are made of. A split looks at one fragment and finds the
// end of the match that starts at an offset, or that none starts there; what lies between matches
// is a piece of its own. A fragment is all a split sees: its end counts as the end of the text.
#pragma once

#include <cstddef>
#include <string_view>

namespace cuvil::text {

// The end of the match at text[at] (> at), or 0 when no match starts there. at < text.size().
using SplitFn = size_t (*)(std::string_view text, size_t at);

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t SplitGpt2(std::string_view text, size_t at);

// Contractions in either case, a letter run with one leading character that is no letter, number or
// line break, ` ?` punctuation with the line breaks after it, line breaks with the white space
// before them, other white space. Numbers: runs of at most three, or single.
size_t SplitLlama3(std::string_view text, size_t at);
size_t SplitQwen2(std::string_view text, size_t at);
// As Qwen2 with marks counted as letters inside words.
size_t SplitQwen35(std::string_view text, size_t at);

// As Llama3, but a word starts anew at a change from lower to upper case; contractions end words
// (Gpt4o) or are none (Tekken, whose numbers are single).
size_t SplitGpt4o(std::string_view text, size_t at);
size_t SplitTekken(std::string_view text, size_t at);

// The last stage of the DeepSeek V3 family: ASCII punctuation glued to ASCII letters, words of
// letters and marks, punctuation with line breaks, white space.
size_t SplitDeepSeek3(std::string_view text, size_t at);

// Runs of one class.
size_t SplitNumber(std::string_view text, size_t at);            // \p{N}
size_t SplitNumbers(std::string_view text, size_t at);           // \p{N}+
size_t SplitNumbersUpTo3(std::string_view text, size_t at);      // \p{N}{1,3}
size_t SplitAsciiDigits3(std::string_view text, size_t at);      // [0-9][0-9][0-9]
size_t SplitPunctuation(std::string_view text, size_t at);       // [\p{P}$+<=>^~|]+
size_t SplitPunctuationTick(std::string_view text, size_t at);   // the same with `
size_t SplitLineBreak(std::string_view text, size_t at);         // [\r\n]
size_t SplitSpaceLetters(std::string_view text, size_t at);      // \s?\p{L}+
size_t SplitSpacePunctuation(std::string_view text, size_t at);  // \s?\p{P}+
size_t SplitCjkHangul(std::string_view text, size_t at);         // [一-龥ࠀ-一가-퟿]+
size_t SplitCjkKana(std::string_view text, size_t at);           // [一-龥぀-ゟ゠-ヿ]+
size_t SplitBloom(std::string_view text, size_t at);             //  ?[^(\s|.,!?…。，、।۔،)]+

}  // namespace cuvil::text
