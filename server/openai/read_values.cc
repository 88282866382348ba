#include "server/openai/read_values.h"

#include <charconv>
#include <limits>

#include "server/openai/error.h"

namespace cuvil::server::openai {
namespace {

constexpr size_t kStopsMax = 4;
constexpr size_t kStopTokensMax = 128;
// A table of biases longer than this is a mistake; OpenAI's own limit is 1024.
constexpr size_t kBiasesMax = 4096;
constexpr double kBiasMax = 100;
constexpr size_t kMetadataPairsMax = 16;
constexpr size_t kMetadataKeyMax = 64;

absl::Status Wrong(const Field& field, std::string_view must) {
  return Invalid(field.name, absl::StrCat(field.name, " ", Sv(must)));
}

absl::Status Wrong(const char* field, std::string_view must) {
  return Invalid(field, absl::StrCat(field, " ", Sv(must)));
}

absl::Status CheckStopTokenCount(const char* field, size_t count) {
  if (count <= kStopTokensMax) return absl::OkStatus();
  return Wrong(field, absl::StrCat("has more than ", kStopTokensMax, " ids"));
}

std::string TooManyBiases() { return absl::StrCat("has more than ", kBiasesMax, " entries"); }

// Ids fit 32 bits; the vocabulary's size is checked where the model is known.
bool IsToken(const Value& value, int32_t* id) {
  int64_t number = -1;
  if (!IsInteger(value, &number)) return false;
  if (number < 0 || number > std::numeric_limits<int32_t>::max()) return false;
  *id = static_cast<int32_t>(number);
  return true;
}

absl::Status ReadTokenList(const Field& field, const simdjson::dom::array& array,
                           std::vector<int32_t>* out) {
  // size() saturates at 2^24; it is only a hint here.
  out->reserve(array.size());
  for (const Value item : array) {
    int32_t id = -1;
    if (!IsToken(item, &id)) {
      return Wrong(field, "holds a token id that is not an integer from 0 to 2147483647");
    }
    out->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status AddPrompt(const Field& field, const Value& value, RequestBody* body) {
  if (static_cast<int64_t>(body->prompts.size()) >= kInputsMax) {
    return Wrong(field, absl::StrCat("has too many entries; the limit is ", kInputsMax));
  }
  Prompt prompt;
  std::string_view text;
  if (IsString(value, &text)) {
    prompt.text = std::string(text);
  } else if (value.type() == element_type::ARRAY) {
    prompt.is_tokens = true;
    RETURN_IF_ERROR(ReadTokenList(field, value.get_array().value_unsafe(), &prompt.tokens));
  } else {
    return Wrong(field, "must be a string, a list of strings, token ids, or a list of those");
  }
  body->prompts.push_back(std::move(prompt));
  return absl::OkStatus();
}

bool StartsWithNumber(const simdjson::dom::array& array) {
  const auto first = array.begin();
  if (first == array.end()) return false;
  const element_type type = (*first).type();
  return type != element_type::STRING && type != element_type::ARRAY;
}

}  // namespace

absl::Status ReadPrompts(const Field& field, const Value& value, RequestBody* body) {
  body->has_prompt = true;
  if (value.type() != element_type::ARRAY) return AddPrompt(field, value, body);
  const simdjson::dom::array array = value.get_array().value_unsafe();
  if (array.begin() == array.end()) return Wrong(field, "is empty; give at least one prompt");
  if (StartsWithNumber(array)) return AddPrompt(field, value, body);
  const element_type type = (*array.begin()).type();
  for (const Value item : array) {
    if (item.type() != type) return Wrong(field, "mixes strings and lists of token ids");
    RETURN_IF_ERROR(AddPrompt(field, item, body));
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::ARRAY) return Wrong(field, "must be a list of token ids");
  body->has_tokens = true;
  return ReadTokenList(field, value.get_array().value_unsafe(), &body->tokens);
}

absl::Status AddStop(const char* field, std::string_view text, RequestBody* body) {
  if (text.empty()) return Wrong(field, "holds an empty string, which would end every text");
  if (text.size() > kLabelBytesMax) {
    return Wrong(field, absl::StrCat("holds a string over ", kLabelBytesMax, " bytes"));
  }
  if (body->stop.size() == kStopsMax) {
    return Wrong(field, absl::StrCat("has more than ", kStopsMax, " strings"));
  }
  body->stop.emplace_back(text);
  return absl::OkStatus();
}

absl::Status ReadStop(const Field& field, const Value& value, RequestBody* body) {
  const auto add = [&field, body](const Value& item) -> absl::Status {
    std::string_view text;
    if (!IsString(item, &text)) return Wrong(field, "must be a string or a list of strings");
    return AddStop(field.name, text, body);
  };
  if (value.type() != element_type::ARRAY) return add(value);
  for (const Value item : value.get_array().value_unsafe()) RETURN_IF_ERROR(add(item));
  return absl::OkStatus();
}

absl::Status ReadStopTokens(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::ARRAY) return Wrong(field, "must be a list of token ids");
  const simdjson::dom::array array = value.get_array().value_unsafe();
  RETURN_IF_ERROR(CheckStopTokenCount(field.name, array.size()));
  return ReadTokenList(field, array, &body->stop_token_ids);
}

absl::Status SetStopTokens(const char* field, std::vector<int32_t> ids, RequestBody* body) {
  RETURN_IF_ERROR(CheckStopTokenCount(field, ids.size()));
  body->stop_token_ids = std::move(ids);
  return absl::OkStatus();
}

absl::Status AddBias(const char* field, int64_t id, double bias, RequestBody* body) {
  if (body->logit_bias.size() == kBiasesMax) return Wrong(field, TooManyBiases());
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
    return Wrong(field, "has a key that is no token id");
  }
  if (!(bias >= -kBiasMax && bias <= kBiasMax)) {
    return Wrong(field, "has a value that is no number from -100 to 100");
  }
  if (body->logit_bias.emplace(static_cast<int32_t>(id), bias).second) return absl::OkStatus();
  return Wrong(field, "names a token id twice");
}

absl::Status ReadLogitBias(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::OBJECT) {
    return Wrong(field, "must be an object from token ids to numbers");
  }
  const simdjson::dom::object object = value.get_object().value_unsafe();
  if (object.size() > kBiasesMax) return Wrong(field, TooManyBiases());
  for (const auto& [key, item] : object) {
    int32_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size()) id = -1;
    double bias = std::numeric_limits<double>::quiet_NaN();
    IsNumber(item, &bias);
    RETURN_IF_ERROR(AddBias(field.name, id, bias, body));
  }
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::OBJECT) return Wrong(field, "must be an object");
  body->has_stream_options = true;
  for (const auto& [key, item] : value.get_object().value_unsafe()) {
    if (key != "include_usage" || item.is_null()) continue;
    if (!IsBoolean(item, &body->include_usage)) {
      return Invalid("stream_options.include_usage",
                     "stream_options.include_usage must be true or false");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadResponseFormat(const Field& field, const Value& value, RequestBody* body) {
  std::string_view type;
  if (value.type() != element_type::OBJECT || value["type"].get(type) != simdjson::SUCCESS) {
    return Wrong(field, "must be an object with a \"type\"");
  }
  if (type == "text") return absl::OkStatus();
  if (type == "json_object" || type == "json_schema") {
    return Invalid(field.name, "structured output is not supported yet; use {\"type\": \"text\"}",
                   "unsupported_value");
  }
  return Wrong(field, "has an unknown type; use {\"type\": \"text\"}");
}

absl::Status ReadEncodingFormat(const Field& field, const Value& value, RequestBody* body) {
  std::string_view text;
  if (!IsString(value, &text) || (text != "float" && text != "base64")) {
    return Wrong(field, "must be \"float\" or \"base64\"");
  }
  body->base64 = text == "base64";
  return absl::OkStatus();
}

absl::Status ReadMetadata(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::OBJECT) return Wrong(field, "must be an object of strings");
  size_t pairs = 0;
  for (const auto& [key, item] : value.get_object().value_unsafe()) {
    std::string_view text;
    if (!IsString(item, &text)) return Wrong(field, "must be an object of strings");
    if (++pairs > kMetadataPairsMax || key.size() > kMetadataKeyMax ||
        text.size() > kLabelBytesMax) {
      return Wrong(field, "is over its limits: 16 pairs, keys of 64 bytes, values of 512 bytes");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadModalities(const Field& field, const Value& value, RequestBody* body) {
  if (value.type() != element_type::ARRAY) return Wrong(field, "must be [\"text\"]");
  for (const Value item : value.get_array().value_unsafe()) {
    std::string_view text;
    if (!IsString(item, &text) || text != "text") return Wrong(field, "must be [\"text\"]");
  }
  return absl::OkStatus();
}

}  // namespace cuvil::server::openai
