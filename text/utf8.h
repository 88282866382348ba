// UTF-8 by hand: validation, decoding and encoding of single code points. No state, no allocation;
// any thread. "Valid" is what Unicode says: no overlong form, no surrogate, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cuvil::text {

// How many bytes the character whose first byte this is should have; 0 for a byte that starts none.
int Utf8Length(uint8_t first);

// The length in bytes of the valid character that starts at text[at], or 0 when none does.
int ValidUtf8At(std::string_view text, size_t at);

// The offset of the first byte that is not part of valid UTF-8; text.size() when all of it is
// valid.
size_t FirstInvalidUtf8(std::string_view text);

struct Utf8Char {
  uint32_t code = 0;
  int length = 0;  // bytes; 1 and U+FFFD for a byte that is not part of valid UTF-8
};

// Decodes the character at text[at]; at < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t at);

// code is at most U+10FFFF.
void AppendUtf8(uint32_t code, std::string* out);

}  // namespace cuvil::text
