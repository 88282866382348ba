// Readers of the fields that are more than one number, flag or string. Each checks the value's
// shape and limits and says in one sentence what is wrong; FieldTable adds the field's name.
#pragma once

#include "server/openai/field.h"

namespace cuvil::server::openai {

// The same for values that come typed, by the same limits.
absl::Status AddStop(const char* field, std::string_view text, RequestBody* body);
absl::Status SetStopTokens(const char* field, std::vector<int32_t> ids, RequestBody* body);
absl::Status AddBias(const char* field, int64_t id, double bias, RequestBody* body);

absl::Status ReadPrompts(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadTokens(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadStop(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadStopTokens(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadLogitBias(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadStreamOptions(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadResponseFormat(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadEncodingFormat(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadMetadata(const Field& field, const Value& value, RequestBody* body);
absl::Status ReadModalities(const Field& field, const Value& value, RequestBody* body);

}  // namespace cuvil::server::openai
