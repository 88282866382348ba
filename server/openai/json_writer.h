// Writes JSON straight into a string: the path of every streamed token, so no tree and no
// allocation of its own. Strings come out as valid UTF-8 whatever went in (U+FFFD for broken
// bytes), numbers are always finite. Commas are its business; nesting is the caller's: what is
// begun must be ended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cuvil::server::openai {

// Log probabilities of what cannot happen, as OpenAI writes them: JSON has no infinity.
inline constexpr double kNever = -9999.0;

// Appends `text` between quotes.
void AppendJsonString(std::string_view text, std::string* out);

class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  // `name` is one of ours: it needs no escapes.
  JsonWriter& Key(std::string_view name);
  JsonWriter& String(std::string_view text);
  JsonWriter& Int(int64_t value);
  // Not finite: kNever's sign rules, so -inf and NaN are -9999 and inf is 9999.
  JsonWriter& Double(double value);
  JsonWriter& Float(float value);  // as Double, with a float's fewer digits
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  // A value that is JSON already.
  JsonWriter& Raw(std::string_view json);

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Comma();
  template <typename T>
  JsonWriter& Floating(T value);

  std::string* out_;
  bool need_comma_ = false;
};

}  // namespace cuvil::server::openai
