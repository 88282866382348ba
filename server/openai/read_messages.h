// Readers of what belongs to a conversation: messages, the template's variables, tools.
#pragma once

#include "server/openai/field.h"

namespace cuvil::server::openai {

// The same for values that come typed, by the same limits. `name` may be empty; `json` is the text
// of an object.
absl::Status AddMessage(const char* field, std::string_view role, std::string_view content,
                        std::string_view name, RequestBody* body);
absl::Status SetTemplateKwargs(const char* field, std::string_view json, RequestBody* body);
// InvalidArgument when there is no message.
absl::Status CheckMessages(const char* field, const RequestBody& body);

absl::Status ReadMessages(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadTemplateKwargs(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadTools(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadToolChoice(const Field& field, const Value& value, RequestBody* body);

}  // namespace cuvil::server::openai
