#include "server/openai/text_answer.h"

#include <algorithm>
#include <utility>

#include "server/openai/error.h"

namespace cuvil::server::openai {
namespace {

constexpr char kDone[] = "data: [DONE]\n\n";

// What a token with alternatives weighs in JSON, roughly: for bytes_held only.
constexpr size_t kTokenJsonBytes = 80;

std::string_view ReasonText(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

}  // namespace

TextAnswer::TextAnswer(TextAnswerOptions options)
    : Answer(options.parts),
      options_(std::move(options)),
      parts_(static_cast<size_t>(options_.parts)) {
  JsonWriter json(&chunk_head_);
  chunk_head_ = "data: ";
  json.BeginObject();
  json.Key("id").String(options_.id);
  json.Key("object").String(options_.chat ? "chat.completion.chunk" : "text_completion");
  json.Key("created").Int(options_.created);
  json.Key("model").String(options_.model);
  json.Key("choices").BeginArray();
}

TextAnswer::Choice& TextAnswer::ChoiceOf(int part, int choice) {
  std::vector<Choice>& choices = parts_[static_cast<size_t>(part)].choices;
  if (static_cast<size_t>(choice) >= choices.size()) {
    choices.resize(static_cast<size_t>(choice) + 1);
  }
  return choices[static_cast<size_t>(choice)];
}

std::vector<std::pair<int, TextAnswer::Delta>> TextAnswer::Split(Events* events) const {
  std::vector<std::pair<int, Delta>> deltas;
  const auto of = [&deltas](int choice) -> Delta& {
    // Few choices take part in a step, and mostly in order: the last is the likeliest.
    for (size_t i = deltas.size(); i-- > 0;) {
      if (deltas[i].first == choice) return deltas[i].second;
    }
    return deltas.emplace_back(choice, Delta()).second;
  };
  for (TokenEvent& event : events->tokens) {
    Delta& delta = of(event.choice);
    if (delta.text.empty()) {
      delta.text = std::move(event.text);
    } else {
      delta.text += event.text;
    }
    if (options_.logprobs) delta.tokens.push_back(std::move(event.token));
  }
  for (ChoiceEnd& end : events->ended) {
    Delta& delta = of(end.choice);
    delta.text += end.text;
    delta.end = end.reason;
  }
  return deltas;
}

void TextAnswer::Take(int part, Events events, std::string* sse) {
  if (complete()) return;
  Part& state = parts_[static_cast<size_t>(part)];
  if (!events.prompt_logprobs.empty()) state.prompt_logprobs = std::move(events.prompt_logprobs);
  if (!events.status.ok()) return FailWith(events, sse);
  std::vector<std::pair<int, Delta>> deltas = Split(&events);
  if (options_.stream && !state.introduced && (!deltas.empty() || events.done)) {
    Introduce(part, sse);
  }
  for (auto& [choice, delta] : deltas) {
    if (delta.end.has_value()) {
      if (const absl::Status failed = FailureOf(*delta.end); !failed.ok()) {
        delta.end.reset();
        TakeChoice(part, choice, std::move(delta), sse);
        return Fail(failed, sse);
      }
    }
    TakeChoice(part, choice, std::move(delta), sse);
  }
  if (!events.best.empty()) state.best = std::move(events.best);
  Account(events);
  if (!complete() || !options_.stream) return;
  if (options_.include_usage) WriteUsageChunk(sse);
  sse->append(kDone);
}

void TextAnswer::Introduce(int part, std::string* sse) {
  Part& state = parts_[static_cast<size_t>(part)];
  state.introduced = true;
  const auto part_index = static_cast<size_t>(part);
  for (int i = 0; i < options_.choices; ++i) {
    Choice& choice = ChoiceOf(part, i);
    const int index = part * options_.choices + i;
    if (options_.chat) {
      WriteChunk(index, "", /*role=*/true, "null", std::nullopt, sse);
    } else if (options_.echo) {
      const Echo& echo = options_.echoes[part_index];
      std::string logprobs = "null";
      if (options_.logprobs) {
        logprobs.clear();
        AppendCompletionLogprobs(
            *options_.tokenizer, state.prompt_logprobs,
            {.tokens = state.prompt_logprobs.size(), .first_is_added = echo.first_is_added},
            &choice.position, &logprobs);
      }
      WriteChunk(index, echo.text, false, logprobs, std::nullopt, sse);
    }
  }
}

void TextAnswer::TakeChoice(int part, int choice, Delta delta, std::string* sse) {
  Choice& state = ChoiceOf(part, choice);
  if (!options_.stream) {
    bytes_held_ += delta.text.size();
    for (engine::SampledToken& token : delta.tokens) {
      bytes_held_ += kTokenJsonBytes * (1 + token.top.size());
      state.tokens.push_back(std::move(token));
    }
    state.text += delta.text;
    if (delta.end.has_value()) state.end = delta.end;
    return;
  }
  const int index = part * options_.choices + choice;
  if (!delta.text.empty() || !delta.tokens.empty()) {
    WriteChunk(index, delta.text, false, LogprobsOf(delta.tokens, &state.position), std::nullopt,
               sse);
  }
  if (delta.end.has_value()) WriteChunk(index, "", false, "null", delta.end, sse);
}

std::string TextAnswer::LogprobsOf(const std::vector<engine::SampledToken>& tokens,
                                   TextPosition* position) const {
  if (!options_.logprobs || tokens.empty()) return "null";
  std::string out;
  if (options_.chat) {
    AppendChatLogprobs(*options_.tokenizer, tokens, &out);
  } else {
    AppendCompletionLogprobs(*options_.tokenizer, tokens, {}, position, &out);
  }
  return out;
}

void TextAnswer::WriteChunk(int index, std::string_view text, bool role,
                            const std::string& logprobs, std::optional<FinishReason> end,
                            std::string* sse) const {
  sse->append(chunk_head_);
  JsonWriter json(sse);
  json.BeginObject().Key("index").Int(index);
  if (options_.chat) {
    json.Key("delta").BeginObject();
    if (role) json.Key("role").String("assistant");
    if (!end.has_value()) json.Key("content").String(text);
    json.EndObject();
  } else {
    json.Key("text").String(text);
  }
  json.Key("logprobs").Raw(logprobs);
  json.Key("finish_reason");
  end.has_value() ? json.String(ReasonText(*end)) : json.Null();
  json.EndObject().EndArray();
  if (options_.include_usage) json.Key("usage").Null();
  json.EndObject();
  sse->append("\n\n");
}

void TextAnswer::WriteUsageChunk(std::string* sse) const {
  sse->append(chunk_head_);
  JsonWriter json(sse);
  json.EndArray();
  WriteUsage(&json);
  if (options_.timings) WriteTimings(&json);
  json.EndObject();
  sse->append("\n\n");
}

void TextAnswer::WriteUsage(JsonWriter* json) const {
  const Usage& used = usage();
  json->Key("usage").BeginObject();
  json->Key("prompt_tokens").Int(used.prompt_tokens);
  json->Key("completion_tokens").Int(used.completion_tokens);
  json->Key("total_tokens").Int(used.prompt_tokens + used.completion_tokens);
  json->Key("prompt_tokens_details").BeginObject();
  json->Key("cached_tokens").Int(used.cached_tokens).EndObject();
  json->Key("completion_tokens_details").BeginObject();
  json->Key("reasoning_tokens").Int(0).EndObject();
  json->Key("trimmed_tokens").Int(used.trimmed_tokens).EndObject();
}

void TextAnswer::WriteTimings(JsonWriter* json) const {
  const Timings& took = timings();
  json->Key("timings").BeginObject();
  json->Key("queue_s").Double(took.queue_s);
  json->Key("first_token_s").Double(took.first_token_s);
  json->Key("prefill_s").Double(took.prefill_s);
  json->Key("total_s").Double(took.total_s);
  json->Key("preemptions").Int(usage().preemptions).EndObject();
}

void TextAnswer::WriteWholeChoice(int index, const Part& part, int part_index, const Choice& choice,
                                  JsonWriter* json) const {
  json->BeginObject().Key("index").Int(index);
  std::string text;
  std::vector<engine::SampledToken> tokens;
  EchoedTokens echoed;
  if (options_.echo) {
    const Echo& echo = options_.echoes[static_cast<size_t>(part_index)];
    text = echo.text;
    tokens = part.prompt_logprobs;
    echoed = {.tokens = tokens.size(), .first_is_added = echo.first_is_added};
  }
  text += choice.text;
  tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
  if (options_.chat) {
    json->Key("message").BeginObject().Key("role").String("assistant");
    json->Key("content").String(text).Key("refusal").Null().EndObject();
  } else {
    json->Key("text").String(text);
  }
  std::string logprobs = "null";
  if (options_.logprobs) {
    logprobs.clear();
    TextPosition position;
    if (options_.chat) {
      AppendChatLogprobs(*options_.tokenizer, tokens, &logprobs);
    } else {
      AppendCompletionLogprobs(*options_.tokenizer, tokens, echoed, &position, &logprobs);
    }
  }
  json->Key("logprobs").Raw(logprobs);
  json->Key("finish_reason").String(ReasonText(choice.end.value_or(FinishReason::kStop)));
  json->EndObject();
}

std::string TextAnswer::Body() {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject();
  json.Key("id").String(options_.id);
  json.Key("object").String(options_.chat ? "chat.completion" : "text_completion");
  json.Key("created").Int(options_.created);
  json.Key("model").String(options_.model);
  json.Key("choices").BeginArray();
  for (int p = 0; p < options_.parts; ++p) {
    const Part& part = parts_[static_cast<size_t>(p)];
    for (int i = 0; i < options_.choices; ++i) {
      const auto position = static_cast<size_t>(i);
      const int from = position < part.best.size() ? part.best[position] : i;
      WriteWholeChoice(p * options_.choices + i, part, p, ChoiceOf(p, from), &json);
    }
  }
  json.EndArray();
  WriteUsage(&json);
  if (options_.timings) WriteTimings(&json);
  json.EndObject();
  return body;
}

void TextAnswer::WriteFailure(const absl::Status& status, std::string* sse) {
  if (!options_.stream) return;
  absl::StrAppend(sse, "data: ", ErrorBody(ErrorOf(status)), "\n\n", kDone);
}

}  // namespace cuvil::server::openai
