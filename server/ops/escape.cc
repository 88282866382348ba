#include "server/ops/escape.h"

#include "absl/strings/str_format.h"
#include "text/utf8.h"

namespace cuvil::ops {
namespace {

// Characters a terminal or viewer obeys instead of showing.
bool IsActive(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return true;
  if (code == 0x2028 || code == 0x2029) return true;                      // line, paragraph
  if (code == 0x061c || code == 0x200e || code == 0x200f) return true;    // bidi marks
  if (code >= 0x202a && code <= 0x202e) return true;                      // embeddings
  if (code >= 0x2066 && code <= 0x2069) return true;                      // isolates
  if (code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb)) return true;  // BOM, annotations
  return code >= 0x200b && code <= 0x200d;                                // zero width
}

void AppendUnicodeEscape(uint32_t code, std::string* out) {
  absl::StrAppendFormat(out, "\\u%04x", code);
}

}  // namespace

std::string EscapeForLog(std::string_view text, size_t bytes_max) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const text::Utf8Char c = text::DecodeUtf8(text, at);
    if (at + static_cast<size_t>(c.length) > bytes_max) {
      out += "…";
      break;
    }
    const bool invalid = text::ValidUtf8At(text, at) == 0;
    if (invalid) {
      AppendUnicodeEscape(0xfffd, &out);
    } else if (c.code == '"' || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (IsActive(c.code)) {
      AppendUnicodeEscape(c.code, &out);
    } else {
      out.append(text.substr(at, static_cast<size_t>(c.length)));
    }
    at += static_cast<size_t>(c.length);
  }
  return out;
}

}  // namespace cuvil::ops
