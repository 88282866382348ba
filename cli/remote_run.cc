#include "cli/remote_run.h"

#include "cli/output.h"

namespace cuvil::cli {
namespace {

Json BodyOf(const RemoteQuestion& q, const engine::Request& request) {
  const engine::SamplingParams& s = request.sampling;
  Json body = {{"model", q.model},
               {"temperature", s.temperature},
               {"top_p", s.top_p},
               {"top_k", s.top_k},
               {"min_p", s.min_p},
               {"repetition_penalty", s.repetition_penalty},
               {"presence_penalty", s.presence_penalty},
               {"frequency_penalty", s.frequency_penalty},
               {"ignore_eos", request.ignore_eos}};
  body[q.raw ? "max_tokens" : "max_completion_tokens"] = request.max_tokens;
  if (q.seeded) body["seed"] = s.seed;
  if (!request.stop.empty()) body["stop"] = request.stop;
  for (const auto& [id, value] : s.logit_bias) body["logit_bias"][absl::StrCat(id)] = value;
  if (q.max_kv_len.has_value()) body["max_kv_len"] = *q.max_kv_len;
  if (q.kv_sinks.has_value()) body["kv_sinks"] = *q.kv_sinks;
  if (q.parse_special) body["parse_special"] = true;
  if (s.logprobs >= 0 && q.raw) body["logprobs"] = s.logprobs;
  if (s.logprobs >= 0 && !q.raw) {
    body["logprobs"] = true;
    body["top_logprobs"] = s.logprobs;
  }
  if (q.raw) {
    body["prompt"] = q.prompt;
    return body;
  }
  body["messages"] = Json::array();
  if (q.has_system) body["messages"].push_back({{"role", "system"}, {"content", q.system}});
  body["messages"].push_back({{"role", "user"}, {"content", q.prompt}});
  return body;
}

// The text of a chunk's first choice, of either endpoint.
std::string TextOf(const Json& event) {
  if (!event.is_object() || !event.contains("choices") || !event["choices"].is_array() ||
      event["choices"].empty())
    return "";
  const Json& choice = event["choices"][0];
  const Json* text = nullptr;
  if (choice.contains("text")) text = &choice["text"];
  if (choice.contains("delta") && choice["delta"].contains("content"))
    text = &choice["delta"]["content"];
  return text != nullptr && text->is_string() ? text->get<std::string>() : "";
}

}  // namespace

absl::Status AskRemote(const RemoteQuestion& q, const engine::Request& request) {
  ASSIGN_OR_RETURN(const HttpClient client, HttpClient::Create(q.remote));
  const std::string path = q.raw ? "/v1/completions" : "/v1/chat/completions";
  Json body = BodyOf(q, request);
  if (q.json) {
    ASSIGN_OR_RETURN(const Json answer, client.Post(path, body));
    return WriteJsonOut(answer);
  }
  body["stream"] = true;
  absl::Status written;
  bool line_open = false;
  RETURN_IF_ERROR(client.Stream(path, body, [&](const Json& event) {
    const std::string text = TextOf(event);
    if (text.empty()) return true;
    written = WriteOut(std::string_view(text));
    line_open = text.back() != '\n';
    return written.ok();
  }));
  RETURN_IF_ERROR(written);
  return line_open ? WriteOut(std::string_view("\n")) : absl::OkStatus();
}

}  // namespace cuvil::cli
