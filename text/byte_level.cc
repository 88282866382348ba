#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace cuvil::text {
namespace {

// The other bytes get the characters from here on, in order.
constexpr uint32_t kFirstStandIn = 0x100;
constexpr uint32_t kAlphabetEnd = kFirstStandIn + 68;

bool IsPrintable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> chars;
  std::array<int, kAlphabetEnd> bytes;  // by code point; -1 where none
};

const Alphabet& TheAlphabet() {
  static const auto* alphabet = [] {
    auto* made = new Alphabet;
    made->bytes.fill(-1);
    uint32_t next = kFirstStandIn;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code = IsPrintable(byte) ? byte : next++;
      AppendUtf8(code, &made->chars[byte]);
      made->bytes[code] = static_cast<int>(byte);
    }
    return made;
  }();
  return *alphabet;
}

}  // namespace

std::string_view ByteLevelChar(uint8_t byte) { return TheAlphabet().chars[byte]; }

std::string ByteLevelDecode(std::string_view token) {
  const Alphabet& alphabet = TheAlphabet();
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = DecodeUtf8(token, at);
    const int byte = c.code < kAlphabetEnd ? alphabet.bytes[c.code] : -1;
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else {
      out.append(token.substr(at, c.length));
    }
    at += c.length;
  }
  return out;
}

}  // namespace cuvil::text
