#include "server/openai/json_writer.h"

#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace cuvil::server::openai {
namespace {

void AppendEscape(unsigned char c, std::string* out) {
  switch (c) {
    case '"':
      out->append("\\\"");
      return;
    case '\\':
      out->append("\\\\");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out->append("\\u00");
  out->push_back(kHex[c >> 4]);
  out->push_back(kHex[c & 15]);
}

bool IsPlain(unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

}  // namespace

void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  size_t i = 0;
  while (i < text.size()) {
    const size_t from = i;
    while (i < text.size() && IsPlain(static_cast<unsigned char>(text[i]))) ++i;
    out->append(text.substr(from, i - from));
    if (i == text.size()) break;
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      AppendEscape(c, out);
      ++i;
    } else if (const int length = text::ValidUtf8At(text, i); length > 0) {
      out->append(text.substr(i, static_cast<size_t>(length)));
      i += static_cast<size_t>(length);
    } else {
      out->append("\xEF\xBF\xBD");
      ++i;
    }
  }
  out->push_back('"');
}

void JsonWriter::Comma() {
  if (need_comma_) out_->push_back(',');
}

JsonWriter& JsonWriter::Open(char bracket) {
  Comma();
  out_->push_back(bracket);
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_->push_back(bracket);
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Comma();
  out_->push_back('"');
  out_->append(name);
  out_->append("\":");
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) {
  Comma();
  AppendJsonString(text, out_);
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  return Raw(std::string_view(digits, static_cast<size_t>(end.ptr - digits)));
}

template <typename T>
JsonWriter& JsonWriter::Floating(T value) {
  if (!std::isfinite(value)) value = static_cast<T>(value > 0 ? -kNever : kNever);
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  std::string_view text(digits, static_cast<size_t>(end.ptr - digits));
  Raw(text);
  // Typed clients tell 0 from 0.0.
  if (text.find_first_of(".e") == std::string_view::npos) out_->append(".0");
  return *this;
}

JsonWriter& JsonWriter::Double(double value) { return Floating(value); }
JsonWriter& JsonWriter::Float(float value) { return Floating(value); }
JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Comma();
  out_->append(json);
  need_comma_ = true;
  return *this;
}

}  // namespace cuvil::server::openai
