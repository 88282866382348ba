#include "text/chat_template.h"

#include <ctime>
#include <utility>

#include "text/jinja_eval.h"
#include "text/jinja_parser.h"

namespace cuvil::text {

namespace jinja {
struct Parsed {
  Block block;
};
}  // namespace jinja

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

bool NestsTooDeep(const Json& json, int left) {
  if (!json.is_structured()) return false;
  if (left == 0) return true;
  for (const Json& item : json) {
    if (NestsTooDeep(item, left - 1)) return true;
  }
  return false;
}

// Room for the levels that the inputs themselves add around a caller's JSON.
constexpr int kExtraDepthMax = jinja::kValueDepthMax - 8;

Value ToValue(const ChatTemplate::Message& message) {
  Dict dict;
  const auto set = [&dict](std::string_view key, Value value) {
    dict.Set(MarkedString(key, true), std::move(value));
  };
  set("role", Value::Of(message.role, false));
  const bool parts = message.extra.contains("content") && !message.extra["content"].is_string();
  set("content",
      parts ? Value::FromJson(message.extra["content"], false) : Value::Of(message.content, false));
  for (const auto& [key, value] : message.extra.items()) {
    if (key == "role" || key == "content") continue;
    dict.Set(MarkedString(key, false), Value::FromJson(value, false));
  }
  return Value::Of(std::move(dict));
}

absl::Status CheckInputs(const ChatTemplate::Inputs& inputs) {
  bool ok = inputs.extra.is_object() && !NestsTooDeep(inputs.extra, kExtraDepthMax);
  for (const ChatTemplate::Message& message : inputs.messages) {
    ok = ok && message.extra.is_object() && !NestsTooDeep(message.extra, kExtraDepthMax);
  }
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the chat template's inputs must be JSON objects nested at most ", kExtraDepthMax, " deep"));
}

absl::StatusOr<MarkedString> Run(const jinja::Block& block, const ChatTemplate::Inputs& inputs) {
  RETURN_IF_ERROR(CheckInputs(inputs));
  jinja::Interpreter interpreter(inputs.now.value_or(std::time(nullptr)));
  for (const auto& [key, value] : inputs.extra.items()) {
    interpreter.SetGlobal(key, Value::FromJson(value, false));
  }
  List messages;
  for (const ChatTemplate::Message& message : inputs.messages) {
    messages.items.push_back(ToValue(message));
  }
  interpreter.SetGlobal("messages", Value::Of(std::move(messages)));
  interpreter.SetGlobal("add_generation_prompt", Value::Of(inputs.add_generation_prompt));
  interpreter.SetGlobal("bos_token", Value::Of(inputs.bos_token, true));
  interpreter.SetGlobal("eos_token", Value::Of(inputs.eos_token, true));
  return interpreter.Run(block);
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  ASSIGN_OR_RETURN(jinja::Block block, jinja::ParseTemplate(source));
  return ChatTemplate(std::make_shared<const jinja::Parsed>(jinja::Parsed{std::move(block)}));
}

absl::StatusOr<std::string> ChatTemplate::Render(const Inputs& inputs) const {
  ASSIGN_OR_RETURN(MarkedString out, Run(parsed_->block, inputs));
  return out.bytes();
}

absl::StatusOr<std::vector<Segment>> ChatTemplate::RenderSegments(const Inputs& inputs) const {
  ASSIGN_OR_RETURN(MarkedString out, Run(parsed_->block, inputs));
  return out.Segments();
}

}  // namespace cuvil::text
