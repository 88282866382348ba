#include "server/grpc/read_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "server/openai/error.h"
#include "server/openai/field.h"
#include "server/openai/read_messages.h"
#include "server/openai/read_values.h"

namespace cuvil::server::grpc {
namespace {

using openai::RequestBody;
using openai::TypedTable;

constexpr size_t kRequestIdBytesMax = 128;

absl::Status SetModel(const std::string& name, RequestBody* body) {
  return TypedTable().SetString("model", name, body);
}

std::vector<int32_t> IdsOf(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

void SetText(const std::string& text, RequestBody* body) {
  body->has_prompt = true;
  body->prompts.emplace_back().text = text;
}

void SetTokens(const v1::TokenIds& tokens, RequestBody* body) {
  body->has_prompt = true;
  openai::Prompt& prompt = body->prompts.emplace_back();
  prompt.is_tokens = true;
  prompt.tokens = IdsOf(tokens.ids());
}

absl::Status SetMessages(const v1::Messages& messages, RequestBody* body) {
  body->has_messages = true;
  for (const v1::Message& m : messages.messages()) {
    RETURN_IF_ERROR(openai::AddMessage("messages", m.role(), m.content(), m.name(), body));
  }
  if (messages.has_add_generation_prompt()) {
    body->add_generation_prompt = messages.add_generation_prompt();
  }
  if (!messages.template_variables().empty()) {
    RETURN_IF_ERROR(
        openai::SetTemplateKwargs("template_variables", messages.template_variables(), body));
  }
  return openai::CheckMessages("messages", *body);
}

absl::Status SetSampling(const v1::Sampling& s, RequestBody* body) {
  const openai::FieldTable& table = TypedTable();
  const auto number = [&](const char* name, bool has, double value) {
    return has ? table.SetNumber(name, value, body) : absl::OkStatus();
  };
  RETURN_IF_ERROR(number("temperature", s.has_temperature(), s.temperature()));
  RETURN_IF_ERROR(number("top_p", s.has_top_p(), s.top_p()));
  if (s.has_top_k()) RETURN_IF_ERROR(table.SetInteger("top_k", s.top_k(), body));
  RETURN_IF_ERROR(number("min_p", s.has_min_p(), s.min_p()));
  RETURN_IF_ERROR(number("repetition_penalty", s.has_repetition_penalty(), s.repetition_penalty()));
  RETURN_IF_ERROR(number("presence_penalty", s.has_presence_penalty(), s.presence_penalty()));
  RETURN_IF_ERROR(number("frequency_penalty", s.has_frequency_penalty(), s.frequency_penalty()));
  for (const auto& [id, bias] : s.logit_bias()) {
    RETURN_IF_ERROR(openai::AddBias("logit_bias", id, bias, body));
  }
  if (s.has_seed()) body->seed = static_cast<int64_t>(s.seed());  // the same 64 bits
  return absl::OkStatus();
}

absl::Status SetEnd(const v1::GenerateRequest& r, RequestBody* body) {
  const openai::FieldTable& table = TypedTable();
  if (r.has_max_tokens()) RETURN_IF_ERROR(table.SetInteger("max_tokens", r.max_tokens(), body));
  RETURN_IF_ERROR(table.SetInteger("min_tokens", r.min_tokens(), body));
  for (const std::string& stop : r.stop()) RETURN_IF_ERROR(openai::AddStop("stop", stop, body));
  RETURN_IF_ERROR(openai::SetStopTokens("stop_token_ids", IdsOf(r.stop_token_ids()), body));
  body->ignore_eos = r.ignore_eos();
  body->include_stop = r.include_stop();
  return absl::OkStatus();
}

absl::Status SetTrim(const v1::Trim& trim, RequestBody* body) {
  RETURN_IF_ERROR(TypedTable().SetInteger("max_kv_len", trim.max_kv_len(), body));
  if (!trim.has_sinks()) return absl::OkStatus();
  return TypedTable().SetInteger("kv_sinks", trim.sinks(), body);
}

}  // namespace

absl::StatusOr<RequestBody> ReadBody(const v1::GenerateRequest& r) {
  const openai::FieldTable& table = TypedTable();
  RequestBody body;
  RETURN_IF_ERROR(SetModel(r.model(), &body));
  if (r.has_text()) SetText(r.text(), &body);
  if (r.has_tokens()) SetTokens(r.tokens(), &body);
  if (r.has_chat()) RETURN_IF_ERROR(SetMessages(r.chat(), &body));
  if (r.has_add_special_tokens()) body.add_special_tokens = r.add_special_tokens();
  body.parse_special = r.parse_special();
  RETURN_IF_ERROR(SetSampling(r.sampling(), &body));
  RETURN_IF_ERROR(SetEnd(r, &body));
  if (r.n() != 0) RETURN_IF_ERROR(table.SetInteger("n", r.n(), &body));
  RETURN_IF_ERROR(table.SetInteger("best_of", r.best_of(), &body));
  if (r.has_logprobs()) RETURN_IF_ERROR(table.SetInteger("logprobs", r.logprobs(), &body));
  if (r.has_prompt_logprobs()) {
    RETURN_IF_ERROR(table.SetInteger("prompt_logprobs", r.prompt_logprobs(), &body));
  }
  if (r.has_trim()) RETURN_IF_ERROR(SetTrim(r.trim(), &body));
  RETURN_IF_ERROR(table.SetInteger("priority", r.priority(), &body));
  RETURN_IF_ERROR(table.SetString("cache_salt", r.cache_salt(), &body));
  return body;
}

absl::StatusOr<RequestBody> ReadBody(const v1::EmbedRequest& r) {
  RequestBody body;
  RETURN_IF_ERROR(SetModel(r.model(), &body));
  RETURN_IF_ERROR(TypedTable().SetInteger("priority", r.priority(), &body));
  if (r.has_text()) SetText(r.text(), &body);
  if (r.has_tokens()) SetTokens(r.tokens(), &body);
  return body;
}

absl::StatusOr<RequestBody> ReadBody(const v1::TokenizeRequest& r) {
  RequestBody body;
  RETURN_IF_ERROR(SetModel(r.model(), &body));
  if (r.has_text()) SetText(r.text(), &body);
  if (r.has_chat()) RETURN_IF_ERROR(SetMessages(r.chat(), &body));
  if (r.has_add_special_tokens()) body.add_special_tokens = r.add_special_tokens();
  body.parse_special = r.parse_special();
  if (body.has_messages != body.has_prompt) return body;
  return openai::Invalid("prompt", "give either prompt or messages");
}

absl::StatusOr<RequestBody> ReadBody(const v1::DetokenizeRequest& r) {
  RequestBody body;
  RETURN_IF_ERROR(SetModel(r.model(), &body));
  body.has_tokens = true;
  body.tokens = IdsOf(r.tokens());
  return body;
}

bool IsRequestId(std::string_view text) {
  if (text.empty() || text.size() > kRequestIdBytesMax) return false;
  return std::ranges::all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

absl::Status CheckRequestId(std::string_view text) {
  if (IsRequestId(text)) return absl::OkStatus();
  return openai::Invalid("request_id",
                         "request_id must be 1 to 128 letters, digits, '.', '_' or '-'");
}

}  // namespace cuvil::server::grpc
