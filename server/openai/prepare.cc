#include "server/openai/prepare.h"

#include <algorithm>
#include <memory>

#include "server/openai/embedding_answer.h"
#include "server/openai/error.h"
#include "server/openai/field.h"
#include "server/openai/json_writer.h"
#include "server/openai/prompt.h"
#include "server/openai/text_answer.h"

namespace cuvil::server::openai {
namespace {

using ModelPtr = std::shared_ptr<const ServedModel>;

// OpenAI's default for completions; chat has none.
constexpr int64_t kCompletionTokens = 16;
// What the sampler can tell from 0: only the likeliest token is within it.
constexpr double kTopPMin = 1e-9;

absl::Status CheckTools(const RequestBody& body) {
  const bool wants = body.asks_for_tool || (body.has_tools && !body.no_tool_choice);
  if (!wants) return absl::OkStatus();
  return Invalid("tools",
                 "tools are not supported yet; leave them out or set tool_choice to "
                 "\"none\"",
                 "unsupported_parameter");
}

absl::Status CheckFlags(const RequestBody& body) {
  if (body.has_stream_options && !body.stream) {
    return Invalid("stream_options", "stream_options is only valid with stream: true");
  }
  if (body.top_logprobs.has_value() && !body.logprobs) {
    return Invalid("top_logprobs", "top_logprobs needs logprobs: true");
  }
  if (body.best_of != 0 && body.best_of < body.n) {
    return Invalid("best_of", absl::StrCat("best_of is ", body.best_of, ", below n = ", body.n));
  }
  if (body.best_of > body.n && body.stream) {
    return Invalid("best_of", "best_of above n cannot be streamed: the best are known at the end");
  }
  if (body.kv_sinks.has_value() && !body.max_kv_len.has_value()) {
    return Invalid("kv_sinks", "kv_sinks needs max_kv_len");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TrimOptions>> TrimOf(const RequestBody& body) {
  if (!body.max_kv_len.has_value()) return std::optional<TrimOptions>();
  TrimOptions trim;
  trim.max_kv_len = *body.max_kv_len;
  if (body.kv_sinks.has_value()) trim.sinks = *body.kv_sinks;
  if (trim.max_kv_len > 0 && trim.sinks >= trim.max_kv_len) {
    return Invalid(body.kv_sinks.has_value() ? "kv_sinks" : "max_kv_len",
                   absl::StrCat("max_kv_len is ", trim.max_kv_len, " and must be above the ",
                                trim.sinks, " first positions that are always kept"));
  }
  return std::optional<TrimOptions>(trim);
}

absl::StatusOr<engine::SamplingParams> SamplingOf(const RequestBody& body, const ServedModel& model,
                                                  uint64_t fallback_seed) {
  engine::SamplingParams sampling;
  sampling.temperature = body.temperature;
  sampling.top_p = std::max(body.top_p, kTopPMin);
  sampling.top_k = std::max<int64_t>(body.top_k, 0);
  sampling.min_p = body.min_p;
  sampling.repetition_penalty = body.repetition_penalty;
  sampling.presence_penalty = body.presence_penalty;
  sampling.frequency_penalty = body.frequency_penalty;
  sampling.logit_bias = body.logit_bias;
  sampling.seed = body.seed.has_value() ? static_cast<uint64_t>(*body.seed) : fallback_seed;
  const int vocabulary = model.tokenizer()->vocab_size();
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id < vocabulary) continue;
    return Invalid("logit_bias", absl::StrCat("logit_bias names token ", id,
                                              "; the vocabulary has ids 0 to ", vocabulary - 1));
  }
  RETURN_IF_ERROR(engine::CheckSampling(sampling, vocabulary));
  return sampling;
}

// What all parts have in common.
absl::StatusOr<GenerateRequest> CommonRequest(const RequestBody& body, const ServedModel& model,
                                              const CallContext& context) {
  GenerateRequest request;
  request.model = model.info().name;
  ASSIGN_OR_RETURN(request.sampling, SamplingOf(body, model, context.seed));
  ASSIGN_OR_RETURN(request.trim, TrimOf(body));
  RETURN_IF_ERROR(CheckTokens(model, body.stop_token_ids, "stop_token_ids"));
  request.choices = static_cast<int>(body.n);
  request.best_of = body.best_of > body.n ? static_cast<int>(body.best_of) : 0;
  request.min_tokens = body.min_tokens;
  request.stop = body.stop;
  request.stop_tokens = body.stop_token_ids;
  request.include_stop = body.include_stop;
  request.ignore_eos = body.ignore_eos;
  request.priority = static_cast<int>(body.priority);
  request.tenant = context.tenant;
  request.cache_salt = body.cache_salt;
  request.deadline_ms = context.deadline_ms;
  return request;
}

// `max_tokens` below 0: the rest of the context. REQUIRES: the prompt fits.
absl::Status CheckMinTokens(const RequestBody& body, const ServedModel& model,
                            const GenerateRequest& request) {
  const int64_t room = model.info().context - static_cast<int64_t>(request.prompt.size());
  const int64_t limit = request.max_tokens < 0 ? room : request.max_tokens;
  if (body.min_tokens <= limit) return absl::OkStatus();
  return Invalid("min_tokens", absl::StrCat("min_tokens is ", body.min_tokens,
                                            ", above the limit of ", limit, " tokens"));
}

// Of a completion that names no number: as many as there is room for, at most. At least one, so
// that a prompt without room is refused.
int64_t DefaultTokens(const ServedModel& model, size_t prompt_tokens) {
  const int64_t room = model.info().context - static_cast<int64_t>(prompt_tokens);
  return std::clamp<int64_t>(room, 1, kCompletionTokens);
}

Echo EchoOf(const RequestBody& body, const Prompt& prompt, const std::vector<int32_t>& tokens,
            const ServedModel& model) {
  const text::Tokenizer& tokenizer = *model.tokenizer();
  if (prompt.is_tokens) return {.text = tokenizer.Decode(tokens, /*render_special=*/true)};
  const bool adds = body.add_special_tokens && tokenizer.spec().add_bos;
  return {.text = prompt.text, .first_is_added = adds && tokens.front() == tokenizer.spec().bos};
}

TextAnswerOptions AnswerOptions(const RequestBody& body, const ServedModel& model,
                                const CallContext& context) {
  TextAnswerOptions options;
  options.model = model.info().name;
  options.created = context.created;
  options.choices = static_cast<int>(body.n);
  options.stream = body.stream;
  options.include_usage = body.include_usage;
  options.timings = body.timings;
  options.tokenizer = model.tokenizer();
  return options;
}

absl::StatusOr<GenerateRequest> EmbedRequest(const RequestBody& body, const Prompt& prompt,
                                             const ServedModel& model, const CallContext& context) {
  GenerateRequest request;
  request.model = model.info().name;
  request.task = Task::kEmbed;
  request.tenant = context.tenant;
  request.priority = static_cast<int>(body.priority);
  request.deadline_ms = context.deadline_ms;
  ASSIGN_OR_RETURN(request.prompt, PromptTokens(model, body, prompt, "input"));
  // Nothing is generated: the prompt may fill the context.
  if (static_cast<int64_t>(request.prompt.size()) > model.info().context) {
    RETURN_IF_ERROR(CheckLength(model, request.prompt.size(), -1, "input"));
  }
  return request;
}

std::string PartId(const std::string& id, size_t part, size_t parts) {
  return parts == 1 ? id : absl::StrCat(id, "-", part);
}

}  // namespace

absl::StatusOr<ModelPtr> FindModel(Backend* backend, const RequestBody& body) {
  absl::StatusOr<ModelPtr> model = backend->Find(body.model);
  if (!model.ok()) return About("model", model.status());
  return model;
}

absl::StatusOr<Call> PrepareChat(std::string_view text, const CallContext& context) {
  ASSIGN_OR_RETURN(const RequestBody body, ChatTable().Parse(text));
  if (!body.has_messages) return Invalid("messages", "messages is missing");
  RETURN_IF_ERROR(CheckTools(body));
  RETURN_IF_ERROR(CheckFlags(body));
  const bool by_new_name = body.max_completion_tokens.has_value();
  const int64_t max_tokens = body.max_completion_tokens.value_or(body.max_tokens.value_or(-1));
  if (max_tokens == 0) return Invalid("max_tokens", "max_tokens is 0; give at least 1");

  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(context.backend, body));
  ASSIGN_OR_RETURN(GenerateRequest request, CommonRequest(body, *model, context));
  ASSIGN_OR_RETURN(request.prompt, ChatTokens(*model, body));
  const char* blame = max_tokens < 0 ? "messages"
                      : by_new_name  ? "max_completion_tokens"
                                     : "max_tokens";
  const bool prompt_fits = static_cast<int64_t>(request.prompt.size()) < model->info().context;
  RETURN_IF_ERROR(
      CheckLength(*model, request.prompt.size(), max_tokens, prompt_fits ? blame : "messages"));
  request.max_tokens = max_tokens;
  RETURN_IF_ERROR(CheckMinTokens(body, *model, request));
  if (body.logprobs) request.sampling.logprobs = static_cast<int>(body.top_logprobs.value_or(0));

  TextAnswerOptions options = AnswerOptions(body, *model, context);
  options.id = absl::StrCat("chatcmpl-", context.id);
  options.logprobs = body.logprobs;
  Call call;
  call.id = options.id;
  call.model = options.model;
  call.stream = body.stream;
  request.id = call.id;
  call.parts.push_back(std::move(request));
  call.answer = std::make_unique<TextAnswer>(std::move(options));
  return call;
}

absl::StatusOr<Call> PrepareCompletion(std::string_view text, const CallContext& context) {
  ASSIGN_OR_RETURN(const RequestBody body, CompletionTable().Parse(text));
  if (!body.has_prompt) return Invalid("prompt", "prompt is missing");
  RETURN_IF_ERROR(CheckFlags(body));
  const auto fan_out = static_cast<int64_t>(body.prompts.size()) * std::max(body.n, body.best_of);
  if (fan_out > kFanOutMax) {
    return Invalid("prompt", absl::StrCat("prompts times choices is ", fan_out, "; the limit is ",
                                          kFanOutMax));
  }
  if (body.max_tokens == 0 && !body.echo) {
    return Invalid("max_tokens", "max_tokens is 0 and nothing is echoed; give at least 1");
  }

  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(context.backend, body));
  ASSIGN_OR_RETURN(GenerateRequest common, CommonRequest(body, *model, context));
  TextAnswerOptions options = AnswerOptions(body, *model, context);
  options.chat = false;
  options.id = absl::StrCat("cmpl-", context.id);
  options.parts = static_cast<int>(body.prompts.size());
  options.logprobs = body.completion_logprobs.has_value();
  options.echo = body.echo;
  if (options.logprobs) common.sampling.logprobs = static_cast<int>(*body.completion_logprobs);
  if (options.logprobs && body.echo) common.prompt_logprobs = common.sampling.logprobs;

  Call call;
  call.id = options.id;
  call.model = options.model;
  call.stream = body.stream;
  for (const Prompt& prompt : body.prompts) {
    GenerateRequest request = common;
    ASSIGN_OR_RETURN(request.prompt, PromptTokens(*model, body, prompt, "prompt"));
    request.max_tokens = body.max_tokens.value_or(DefaultTokens(*model, request.prompt.size()));
    const bool prompt_fits = static_cast<int64_t>(request.prompt.size()) < model->info().context;
    RETURN_IF_ERROR(CheckLength(*model, request.prompt.size(), request.max_tokens,
                                prompt_fits && body.max_tokens ? "max_tokens" : "prompt"));
    RETURN_IF_ERROR(CheckMinTokens(body, *model, request));
    if (body.echo) options.echoes.push_back(EchoOf(body, prompt, request.prompt, *model));
    request.id = PartId(call.id, call.parts.size(), body.prompts.size());
    call.parts.push_back(std::move(request));
  }
  call.answer = std::make_unique<TextAnswer>(std::move(options));
  return call;
}

absl::StatusOr<Call> PrepareEmbedding(std::string_view text, const CallContext& context) {
  ASSIGN_OR_RETURN(const RequestBody body, EmbeddingTable().Parse(text));
  if (!body.has_prompt) return Invalid("input", "input is missing");
  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(context.backend, body));
  const int64_t size = model->info().embedding_size;
  if (body.dimensions.has_value() && *body.dimensions != size) {
    return Invalid("dimensions", absl::StrCat("dimensions is ", *body.dimensions,
                                              "; this model's embeddings have ", size,
                                              " and cannot be shortened"));
  }
  Call call;
  call.id = absl::StrCat("embd-", context.id);
  call.model = model->info().name;
  for (const Prompt& prompt : body.prompts) {
    ASSIGN_OR_RETURN(GenerateRequest request, EmbedRequest(body, prompt, *model, context));
    request.id = PartId(call.id, call.parts.size(), body.prompts.size());
    call.parts.push_back(std::move(request));
  }
  call.answer = std::make_unique<EmbeddingAnswer>(call.model, static_cast<int>(call.parts.size()),
                                                  body.base64);
  return call;
}

absl::StatusOr<GenerateRequest> PrepareTyped(const RequestBody& body, const CallContext& context) {
  if (body.has_messages == body.has_prompt) {
    return Invalid("prompt", "give either prompt or messages");
  }
  RETURN_IF_ERROR(CheckFlags(body));
  const int64_t max_tokens = body.max_tokens.value_or(-1);
  if (max_tokens == 0) return Invalid("max_tokens", "max_tokens is 0; give at least 1");
  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(context.backend, body));
  ASSIGN_OR_RETURN(GenerateRequest request, CommonRequest(body, *model, context));
  const char* prompt = body.has_messages ? "messages" : "prompt";
  if (body.has_messages) {
    ASSIGN_OR_RETURN(request.prompt, ChatTokens(*model, body));
  } else {
    ASSIGN_OR_RETURN(request.prompt, PromptTokens(*model, body, body.prompts.front(), prompt));
  }
  const bool prompt_fits = static_cast<int64_t>(request.prompt.size()) < model->info().context;
  RETURN_IF_ERROR(CheckLength(*model, request.prompt.size(), max_tokens,
                              prompt_fits && max_tokens > 0 ? "max_tokens" : prompt));
  request.max_tokens = max_tokens;
  RETURN_IF_ERROR(CheckMinTokens(body, *model, request));
  request.sampling.logprobs = static_cast<int>(body.completion_logprobs.value_or(-1));
  request.prompt_logprobs = static_cast<int>(body.prompt_logprobs.value_or(-1));
  return request;
}

absl::StatusOr<GenerateRequest> PrepareTypedEmbedding(const RequestBody& body,
                                                      const CallContext& context) {
  if (!body.has_prompt) return Invalid("input", "input is missing");
  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(context.backend, body));
  return EmbedRequest(body, body.prompts.front(), *model, context);
}

absl::StatusOr<std::vector<int32_t>> TokensOf(const RequestBody& body, const ServedModel& model) {
  if (body.has_messages) return ChatTokens(model, body);
  if (body.prompts.size() != 1 || body.prompts.front().is_tokens) {
    return Invalid("prompt", "prompt must be one string");
  }
  if (body.prompts.front().text.empty()) return std::vector<int32_t>();
  return PromptTokens(model, body, body.prompts.front(), "prompt");
}

absl::StatusOr<std::string> TextOf(const RequestBody& body, const ServedModel& model) {
  RETURN_IF_ERROR(CheckTokens(model, body.tokens, "tokens"));
  return model.tokenizer()->Decode(body.tokens, /*render_special=*/true);
}

absl::StatusOr<std::string> Tokenize(std::string_view text, Backend* backend) {
  ASSIGN_OR_RETURN(const RequestBody body, TokenizeTable().Parse(text));
  if (body.has_messages == body.has_prompt) {
    return Invalid("prompt", "give either prompt or messages");
  }
  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(backend, body));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, TokensOf(body, *model));
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Key("count").Int(static_cast<int64_t>(tokens.size()));
  json.Key("max_model_len").Int(model->info().context);
  json.Key("tokens").BeginArray();
  for (const int32_t id : tokens) json.Int(id);
  json.EndArray();
  if (body.token_strings) {
    json.Key("token_strs").BeginArray();
    for (const int32_t id : tokens) json.String(model->tokenizer()->TokenBytes(id, true));
    json.EndArray();
  }
  json.EndObject();
  return out;
}

absl::StatusOr<std::string> Detokenize(std::string_view text, Backend* backend) {
  ASSIGN_OR_RETURN(const RequestBody body, DetokenizeTable().Parse(text));
  if (!body.has_tokens) return Invalid("tokens", "tokens is missing");
  ASSIGN_OR_RETURN(const ModelPtr model, FindModel(backend, body));
  ASSIGN_OR_RETURN(const std::string decoded, TextOf(body, *model));
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Key("prompt").String(decoded).EndObject();
  return out;
}

}  // namespace cuvil::server::openai
