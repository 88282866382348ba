#include "server/openai/logprobs.h"

#include <algorithm>

#include "server/openai/json_writer.h"
#include "text/utf8.h"

namespace cuvil::server::openai {
namespace {

double Finite(double logprob) { return std::max(logprob, kNever); }

void WriteToken(const std::string& bytes, double logprob, JsonWriter* json) {
  json->Key("token").String(bytes);
  json->Key("logprob").Double(Finite(logprob));
  json->Key("bytes").BeginArray();
  for (const char c : bytes) json->Int(static_cast<unsigned char>(c));
  json->EndArray();
}

// Whether the character at text[at] may become whole by what follows.
bool IsOpen(std::string_view text, size_t at) {
  const auto length = static_cast<size_t>(text::Utf8Length(static_cast<uint8_t>(text[at])));
  if (length <= text.size() - at) return false;
  const auto continues = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; };
  return std::ranges::all_of(text.substr(at + 1), continues);
}

void Advance(std::string_view bytes, TextPosition* position) {
  std::string& open = position->open;
  open += bytes;
  size_t at = 0;
  while (at < open.size() && !IsOpen(open, at)) {
    at += static_cast<size_t>(text::DecodeUtf8(open, at).length);
    ++position->characters;
  }
  open.erase(0, at);
}

void WriteTop(const text::Tokenizer& tokenizer, const engine::SampledToken& token,
              JsonWriter* json) {
  // Two tokens may be spelled alike; a JSON object has each key once: the likelier one's.
  std::vector<std::string> written;
  std::string key;
  json->BeginObject();
  for (const auto& [id, logprob] : token.top) {
    std::string bytes = tokenizer.TokenBytes(id, /*render_special=*/true);
    if (std::ranges::find(written, bytes) != written.end()) continue;
    key.clear();
    AppendJsonString(bytes, &key);
    json->Key(std::string_view(key).substr(1, key.size() - 2)).Double(Finite(logprob));
    written.push_back(std::move(bytes));
  }
  json->EndObject();
}

}  // namespace

void AppendChatLogprobs(const text::Tokenizer& tokenizer,
                        absl::Span<const engine::SampledToken> tokens, std::string* out) {
  JsonWriter json(out);
  json.BeginObject().Key("content").BeginArray();
  for (const engine::SampledToken& token : tokens) {
    json.BeginObject();
    WriteToken(tokenizer.TokenBytes(token.id, true), token.logprob, &json);
    json.Key("top_logprobs").BeginArray();
    for (const auto& [id, logprob] : token.top) {
      json.BeginObject();
      WriteToken(tokenizer.TokenBytes(id, true), logprob, &json);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray();
  json.Key("refusal").Null().EndObject();
}

void AppendCompletionLogprobs(const text::Tokenizer& tokenizer,
                              absl::Span<const engine::SampledToken> tokens, bool starts_prompt,
                              TextPosition* position, std::string* out) {
  const auto without_value = [starts_prompt](size_t i) { return starts_prompt && i == 0; };
  JsonWriter json(out);
  json.BeginObject().Key("tokens").BeginArray();
  for (const engine::SampledToken& token : tokens) {
    json.String(tokenizer.TokenBytes(token.id, true));
  }
  json.EndArray().Key("token_logprobs").BeginArray();
  for (size_t i = 0; i < tokens.size(); ++i) {
    without_value(i) ? json.Null() : json.Double(Finite(tokens[i].logprob));
  }
  json.EndArray().Key("top_logprobs").BeginArray();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (without_value(i)) {
      json.Null();
    } else {
      WriteTop(tokenizer, tokens[i], &json);
    }
  }
  json.EndArray().Key("text_offset").BeginArray();
  for (const engine::SampledToken& token : tokens) {
    json.Int(static_cast<int64_t>(position->characters));
    Advance(tokenizer.TokenBytes(token.id, true), position);
  }
  json.EndArray().EndObject();
}

}  // namespace cuvil::server::openai
