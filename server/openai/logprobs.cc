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

// The text of a prompt's tokens, one after the other, as Tokenizer::Decode has it: control tokens
// are spelled, the space that encoding put in front is not.
class PromptText {
 public:
  explicit PromptText(const text::Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        prefixed_(tokenizer.spec().kind == text::VocabKind::kSpm &&
                  tokenizer.spec().add_space_prefix),
        starts_(prefixed_) {}

  std::string Next(int32_t id) {
    std::string bytes = tokenizer_.TokenBytes(id, /*render_special=*/true);
    const bool control = tokenizer_.IsControl(id);
    if (starts_ && !control && bytes.starts_with(' ')) bytes.erase(0, 1);
    starts_ = prefixed_ && control;
    return bytes;
  }

 private:
  const text::Tokenizer& tokenizer_;
  const bool prefixed_;
  bool starts_;
};

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
                              absl::Span<const engine::SampledToken> tokens,
                              const EchoedTokens& echoed, TextPosition* position,
                              std::string* out) {
  const auto without_value = [&echoed](size_t i) { return echoed.tokens > 0 && i == 0; };
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
  PromptText prompt(tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i) {
    json.Int(static_cast<int64_t>(position->characters));
    const bool added = i == 0 && echoed.first_is_added;
    if (i >= echoed.tokens) {
      Advance(tokenizer.TokenBytes(tokens[i].id), position);
    } else if (!added) {
      Advance(prompt.Next(tokens[i].id), position);
    }
  }
  json.EndArray().EndObject();
}

}  // namespace cuvil::server::openai
