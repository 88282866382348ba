#include "text/utf8.h"

namespace cuvil::text {
namespace {

uint8_t ByteAt(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// The second byte's range depends on the first: that is where overlong forms, surrogates and values
// above U+10FFFF are refused.
bool SecondByteOk(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return IsContinuation(second);
  }
}

}  // namespace

int Utf8Length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return 2;
  if (first < 0xF0) return 3;
  return first < 0xF5 ? 4 : 0;
}

int ValidUtf8At(std::string_view text, size_t at) {
  const uint8_t first = ByteAt(text, at);
  const int length = Utf8Length(first);
  if (length <= 1) return length;
  if (text.size() - at < static_cast<size_t>(length)) return 0;
  if (!SecondByteOk(first, ByteAt(text, at + 1))) return 0;
  for (int i = 2; i < length; ++i) {
    if (!IsContinuation(ByteAt(text, at + i))) return 0;
  }
  return length;
}

size_t FirstInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const int length = ValidUtf8At(text, at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

Utf8Char DecodeUtf8(std::string_view text, size_t at) {
  const int length = ValidUtf8At(text, at);
  const uint8_t first = ByteAt(text, at);
  if (length == 0) return {0xFFFD, 1};
  if (length == 1) return {first, 1};
  uint32_t code = first & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i) code = (code << 6) | (ByteAt(text, at + i) & 0x3F);
  return {code, length};
}

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
  } else {
    if (code < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    } else {
      out->push_back(static_cast<char>(0xF0 | (code >> 18)));
      out->push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3F)));
    }
    out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
  }
  out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
}

}  // namespace cuvil::text
