#include "server/openai/read_messages.h"

#include <optional>

#include "server/openai/error.h"

namespace cuvil::server::openai {
namespace {

// More turns than any context holds.
constexpr size_t kMessagesMax = 16384;
constexpr size_t kPartsMax = 4096;
constexpr size_t kKwargsMax = 64;
constexpr size_t kToolsMax = 128;

// Names the template gets from us: a request may not replace them.
constexpr std::string_view kOwnVariables[] = {"messages",  "tools",     "documents",
                                              "bos_token", "eos_token", "add_generation_prompt"};

absl::Status Wrong(const std::string& where, std::string_view what) {
  return Invalid(where, absl::StrCat(where, " ", Sv(what)));
}

absl::StatusOr<std::string> PartText(const std::string& where, const Value& part) {
  std::string_view type, text;
  if (part.type() != element_type::OBJECT || part["type"].get(type) != simdjson::SUCCESS) {
    return Wrong(where, "must be an object with a \"type\"");
  }
  if (type != "text" && type != "refusal") {
    return Invalid(absl::StrCat(where, ".type"),
                   absl::StrCat(where, ".type must be \"text\": this server reads text only"));
  }
  if (part[type].get(text) != simdjson::SUCCESS) return Wrong(where, "must hold its text");
  return std::string(text);
}

// A string, or text parts joined by line ends; null is allowed where a turn may be empty.
absl::StatusOr<std::string> ContentText(const std::string& where, const Value& content) {
  std::string_view text;
  if (IsString(content, &text)) return std::string(text);
  if (content.type() != element_type::ARRAY) {
    return Wrong(where, "must be a string or a list of text parts");
  }
  std::string joined;
  size_t parts = 0;
  for (const Value part : content.get_array().value_unsafe()) {
    if (parts == kPartsMax) return Wrong(where, "has too many parts");
    ASSIGN_OR_RETURN(const std::string one, PartText(absl::StrCat(where, "[", parts, "]"), part));
    if (parts++ > 0) joined += '\n';
    joined += one;
  }
  if (parts == 0) return Wrong(where, "is an empty list");
  return joined;
}

absl::StatusOr<std::string> CheckRole(const std::string& where, std::string_view role) {
  if (role == "developer") return std::string("system");
  if (role == "system" || role == "user" || role == "assistant") return std::string(role);
  const bool tool = role == "tool" || role == "function";
  return Wrong(absl::StrCat(where, ".role"),
               tool ? "is a tool's; tools are not supported yet"
                    : "must be \"system\", \"developer\", \"user\" or \"assistant\"");
}

absl::StatusOr<std::string> RoleOf(const std::string& where, const Value& message) {
  std::string_view role;
  if (message["role"].get(role) == simdjson::SUCCESS) return CheckRole(where, role);
  return Wrong(absl::StrCat(where, ".role"), "must be a string");
}

constexpr char kNameIsWrong[] = "must be a string of at most 512 bytes";

absl::Status CheckCount(const char* field, const RequestBody& body) {
  if (body.messages.size() < kMessagesMax) return absl::OkStatus();
  return Wrong(field, absl::StrCat("has more than ", kMessagesMax, " messages"));
}

// The member of that name; nothing when it is missing, null or, where that says as much, [].
std::optional<Value> Member(const Value& message, const char* key, bool empty_is_none) {
  Value value;
  if (message[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  if (empty_is_none && value.type() == element_type::ARRAY &&
      value.get_array().value_unsafe().size() == 0) {
    return std::nullopt;
  }
  return value;
}

absl::StatusOr<text::ChatTemplate::Message> OneMessage(const std::string& where,
                                                       const Value& value) {
  if (value.type() != element_type::OBJECT) return Wrong(where, "must be an object");
  text::ChatTemplate::Message message;
  ASSIGN_OR_RETURN(message.role, RoleOf(where, value));
  for (const char* key : {"tool_calls", "function_call", "audio"}) {
    if (!Member(value, key, /*empty_is_none=*/true).has_value()) continue;
    return Wrong(absl::StrCat(where, ".", key), "is not supported yet");
  }
  const std::string content_at = absl::StrCat(where, ".content");
  if (const std::optional<Value> content = Member(value, "content", false); content.has_value()) {
    ASSIGN_OR_RETURN(message.content, ContentText(content_at, *content));
  } else if (message.role != "assistant") {
    return Wrong(content_at, "is missing");
  }
  if (const std::optional<Value> given = Member(value, "name", false); given.has_value()) {
    std::string_view name;
    if (!IsString(*given, &name) || name.size() > kLabelBytesMax) {
      return Wrong(absl::StrCat(where, ".name"), kNameIsWrong);
    }
    message.extra["name"] = std::string(name);
  }
  return message;
}

absl::Status TakeKwargs(const char* field, const simdjson::dom::object& object, RequestBody* body) {
  if (object.size() > kKwargsMax) return Wrong(field, "has more than 64 variables");
  for (const auto& [key, item] : object) {
    for (const std::string_view own : kOwnVariables) {
      if (key == own) return Wrong(field, "names a variable that the server sets itself");
    }
  }
  ASSIGN_OR_RETURN(body->template_kwargs, ParseJson(simdjson::minify(object)));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMessages(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::ARRAY) return Wrong(field.name, "must be a list of messages");
  body->has_messages = true;
  for (const Value item : value.get_array().value_unsafe()) {
    const size_t index = body->messages.size();
    RETURN_IF_ERROR(CheckCount(field.name, *body));
    ASSIGN_OR_RETURN(text::ChatTemplate::Message message,
                     OneMessage(absl::StrCat(field.name, "[", index, "]"), item));
    body->messages.push_back(std::move(message));
  }
  return CheckMessages(field.name, *body);
}

absl::Status AddMessage(const char* field, std::string_view role, std::string_view content,
                        std::string_view name, RequestBody* body) {
  RETURN_IF_ERROR(CheckCount(field, *body));
  const std::string where = absl::StrCat(field, "[", body->messages.size(), "]");
  text::ChatTemplate::Message message;
  ASSIGN_OR_RETURN(message.role, CheckRole(where, role));
  message.content = std::string(content);
  if (name.size() > kLabelBytesMax) return Wrong(absl::StrCat(where, ".name"), kNameIsWrong);
  if (!name.empty()) message.extra["name"] = std::string(name);
  body->messages.push_back(std::move(message));
  return absl::OkStatus();
}

absl::Status CheckMessages(const char* field, const RequestBody& body) {
  if (!body.messages.empty()) return absl::OkStatus();
  return Wrong(field, "is empty; send at least one message");
}

absl::Status ReadTemplateKwargs(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::OBJECT) return Wrong(field.name, "must be an object");
  return TakeKwargs(field.name, value.get_object().value_unsafe(), body);
}

absl::Status SetTemplateKwargs(const char* field, std::string_view json, RequestBody* body) {
  const absl::StatusOr<Document> document = Document::Parse(json);
  if (!document.ok()) return Wrong(field, "must be an object");
  return TakeKwargs(field, document->root(), body);
}

absl::Status ReadTools(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::ARRAY) return Wrong(field.name, "must be a list");
  const size_t count = value.get_array().value_unsafe().size();
  if (count > kToolsMax) return Wrong(field.name, "has more than 128 tools");
  if (count > 0) body->has_tools = true;
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const Field& field, const Value& value, RequestBody* body) {
  std::string_view text;
  if (IsString(value, &text)) {
    if (text == "none") body->no_tool_choice = true;
    if (text == "none" || text == "auto") return absl::OkStatus();
    if (text != "required") return Wrong(field.name, "must be \"none\" or \"auto\"");
  } else if (value.type() != element_type::OBJECT) {
    return Wrong(field.name, "must be \"none\" or \"auto\"");
  }
  body->asks_for_tool = true;
  return absl::OkStatus();
}

}  // namespace cuvil::server::openai
