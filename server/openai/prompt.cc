#include "server/openai/prompt.h"

#include <algorithm>

#include "server/openai/error.h"

namespace cuvil::server::openai {
namespace {

std::string SpellingOf(const text::Tokenizer& tokenizer, int64_t id) {
  return id < 0 ? "" : tokenizer.spec().tokens[static_cast<size_t>(id)];
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ChatTokens(const ServedModel& model, const RequestBody& body) {
  const text::ChatTemplate* chat = model.chat_template();
  if (chat == nullptr) {
    return Invalid("messages", "the model has no chat template; use the completions endpoint");
  }
  const text::Tokenizer& tokenizer = *model.tokenizer();
  const text::VocabSpec& spec = tokenizer.spec();
  text::ChatTemplate::Inputs inputs;
  inputs.messages = body.messages;
  inputs.add_generation_prompt = body.add_generation_prompt;
  inputs.bos_token = SpellingOf(tokenizer, spec.bos);
  inputs.eos_token = SpellingOf(tokenizer, spec.eos);
  inputs.extra = body.template_kwargs;
  const absl::StatusOr<std::vector<text::Segment>> segments = chat->RenderSegments(inputs);
  if (!segments.ok()) return About("messages", segments.status());
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.EncodeSegments(*segments, {});
  if (!ids.ok()) return About("messages", ids.status());
  // Many templates write the first token themselves; it must not come twice.
  const bool has_bos = !ids->empty() && ids->front() == spec.bos;
  if (spec.add_bos && spec.bos >= 0 && !has_bos) {
    ids->insert(ids->begin(), static_cast<int32_t>(spec.bos));
  }
  if (ids->empty()) return Invalid("messages", "the messages come to no token at all");
  return ids;
}

absl::Status CheckTokens(const ServedModel& model, const std::vector<int32_t>& tokens,
                         const char* field) {
  const int vocabulary = model.tokenizer()->vocab_size();
  for (const int32_t id : tokens) {
    if (id >= 0 && id < vocabulary) continue;
    return Invalid(field, absl::StrCat(field, " holds token ", id, "; the vocabulary has ids 0 to ",
                                       vocabulary - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const ServedModel& model, const RequestBody& body,
                                                  const Prompt& prompt, const char* field) {
  std::vector<int32_t> tokens;
  if (prompt.is_tokens) {
    RETURN_IF_ERROR(CheckTokens(model, prompt.tokens, field));
    tokens = prompt.tokens;
  } else {
    const text::Tokenizer& tokenizer = *model.tokenizer();
    absl::StatusOr<std::vector<int32_t>> encoded = tokenizer.Encode(
        prompt.text, {.parse_special = body.parse_special,
                      .add_bos = body.add_special_tokens && tokenizer.spec().add_bos});
    if (!encoded.ok()) return About(field, encoded.status());
    tokens = *std::move(encoded);
  }
  if (tokens.empty()) {
    return Invalid(field, absl::StrCat(field, " has no tokens; give at least one character"));
  }
  return tokens;
}

absl::Status CheckLength(const ServedModel& model, size_t prompt_tokens, int64_t max_new,
                         const char* field) {
  const int64_t context = model.info().context;
  const auto prompt = static_cast<int64_t>(prompt_tokens);
  const int64_t answer = max_new < 0 ? 1 : max_new;
  // No sum: both may be large.
  if (prompt <= context && answer <= context - prompt) return absl::OkStatus();
  std::string message =
      absl::StrCat("this model's context holds ", context, " tokens; the prompt has ", prompt);
  if (max_new > 1) absl::StrAppend(&message, " and ", max_new, " are asked for");
  absl::StrAppend(&message, "; shorten the prompt or ask for less");
  return Invalid(field, message, kContextLengthExceeded);
}

}  // namespace cuvil::server::openai
