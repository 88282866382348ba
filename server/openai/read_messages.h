// Readers of what belongs to a conversation: messages, the template's variables, tools.
#pragma once

#include "server/openai/field.h"

namespace cuvil::server::openai {

absl::Status ReadMessages(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadTemplateKwargs(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadTools(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadToolChoice(const Field& field, const Value& value, RequestBody* body);

}  // namespace cuvil::server::openai
