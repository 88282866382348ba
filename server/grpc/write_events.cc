#include "server/grpc/write_events.h"

#include <algorithm>
#include <cmath>

#include "server/openai/json_writer.h"
#include "text/utf8.h"

namespace cuvil::server::grpc {
namespace {

double Finite(double logprob) {
  return std::isnan(logprob) ? openai::kNever
                             : std::clamp(logprob, openai::kNever, -openai::kNever);
}

void WriteLogprobs(const text::Tokenizer& tokenizer, const engine::SampledToken& token,
                   bool has_value, v1::Token* out) {
  out->set_piece(tokenizer.TokenBytes(token.id, /*render_special=*/true));
  if (!has_value) return;
  out->set_logprob(Finite(token.logprob));
  for (const auto& [id, logprob] : token.top) {
    v1::TokenLogprob* top = out->add_top();
    top->set_id(id);
    top->set_piece(tokenizer.TokenBytes(id, /*render_special=*/true));
    top->set_logprob(Finite(logprob));
  }
}

v1::FinishReason ReasonOf(FinishReason reason) {
  return reason == FinishReason::kLength ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP;
}

}  // namespace

void WriteUsage(const Usage& usage, v1::Usage* out) {
  out->set_prompt_tokens(usage.prompt_tokens);
  out->set_cached_tokens(usage.cached_tokens);
  out->set_completion_tokens(usage.completion_tokens);
  out->set_trimmed_tokens(usage.trimmed_tokens);
}

std::string WholeUtf8(std::string_view bytes) {
  const size_t good = text::FirstInvalidUtf8(bytes);
  std::string out(bytes.substr(0, good));
  for (size_t i = good; i < bytes.size();) {
    const text::Utf8Char c = text::DecodeUtf8(bytes, i);
    text::AppendUtf8(c.code, &out);
    i += static_cast<size_t>(c.length);
  }
  return out;
}

void EventWriter::Append(const Events& events, std::deque<v1::GenerateResponse>* out) const {
  const auto add = [this, out]() -> v1::GenerateResponse& {
    v1::GenerateResponse& message = out->emplace_back();
    message.set_request_id(request_id);
    return message;
  };
  if (!events.prompt_logprobs.empty()) {
    v1::PromptLogprobs* list = add().mutable_prompt_logprobs();
    for (const engine::SampledToken& token : events.prompt_logprobs) {
      v1::Token* one = list->add_tokens();
      one->set_id(token.id);
      WriteLogprobs(*tokenizer, token, /*has_value=*/list->tokens_size() > 1, one);
    }
  }
  for (const TokenEvent& event : events.tokens) {
    v1::Token* token = add().mutable_token();
    token->set_choice(event.choice);
    token->set_id(event.token.id);
    token->set_text(event.text);
    if (logprobs) WriteLogprobs(*tokenizer, event.token, /*has_value=*/true, token);
  }
  for (const ChoiceEnd& end : events.ended) {
    // The others are the whole request's failure, which is its status.
    if (end.reason != FinishReason::kStop && end.reason != FinishReason::kLength) continue;
    v1::Finish* finish = add().mutable_finish();
    finish->set_choice(end.choice);
    finish->set_reason(ReasonOf(end.reason));
    finish->set_text(end.text);
    finish->set_stop_matched(end.stop_matched);
  }
  if (!events.done || !events.status.ok()) return;
  v1::Done* done = add().mutable_done();
  WriteUsage(events.usage, done->mutable_usage());
  for (const int candidate : events.best) done->add_best(candidate);
}

}  // namespace cuvil::server::grpc
