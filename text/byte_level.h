// GPT-2's alphabet: every byte has a printable character that stands for it in a vocabulary, so
// that tokens are text even where the bytes they stand for are not. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cuvil::text {

// The character (UTF-8) that stands for a byte.
std::string_view ByteLevelChar(uint8_t byte);

// The bytes that a token's text stands for; characters outside the alphabet stand for themselves.
std::string ByteLevelDecode(std::string_view token);

}  // namespace cuvil::text
