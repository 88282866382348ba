// The class of a code point, as pre-tokenizers need it: the general category folded to nine
// classes, with the White_Space property first. Constant after first use; any thread.
#pragma once

#include <cstdint>

namespace cuvil::text {

enum class CharClass : uint8_t {
  kOther,  // control, format, unassigned, private use
  kSpace,
  kUpper,        // Lu
  kTitle,        // Lt
  kLower,        // Ll
  kOtherLetter,  // Lm, Lo
  kMark,
  kNumber,
  kPunctuation,
  kSymbol,
};

CharClass ClassOf(uint32_t code);

inline bool IsSpace(CharClass c) { return c == CharClass::kSpace; }
inline bool IsLetter(CharClass c) { return c >= CharClass::kUpper && c <= CharClass::kOtherLetter; }
inline bool IsNumber(CharClass c) { return c == CharClass::kNumber; }

}  // namespace cuvil::text
