#include "server/openai/embedding_answer.h"

#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "server/openai/json_writer.h"

namespace cuvil::server::openai {
namespace {

std::string Base64(const std::vector<float>& vector) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire form is little-endian");
  std::string bytes(vector.size() * sizeof(float), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), vector.data(), bytes.size());
  return absl::Base64Escape(bytes);
}

}  // namespace

bool Normalise(std::vector<float>* vector) {
  double squares = 0;
  for (const float x : *vector) squares += static_cast<double>(x) * x;
  if (!std::isfinite(squares)) return false;
  if (squares == 0) return true;
  const double scale = 1 / std::sqrt(squares);
  for (float& x : *vector) x = static_cast<float>(x * scale);
  return true;
}

EmbeddingAnswer::EmbeddingAnswer(std::string model, int parts, bool base64)
    : Answer(parts),
      model_(std::move(model)),
      base64_(base64),
      vectors_(static_cast<size_t>(parts)) {}

void EmbeddingAnswer::Take(int part, Events events, std::string* sse) {
  if (complete()) return;
  if (!events.status.ok()) return FailWith(events, sse);
  if (!events.embedding.empty()) {
    if (!Normalise(&events.embedding)) {
      return Fail(absl::InternalError("the embedding is not finite"), sse);
    }
    bytes_held_ += events.embedding.size() * (base64_ ? 6 : 12);
    vectors_[static_cast<size_t>(part)] = std::move(events.embedding);
  }
  if (events.done && vectors_[static_cast<size_t>(part)].empty()) {
    return Fail(absl::InternalError("the model gave no embedding"), sse);
  }
  Account(events);
}

std::string EmbeddingAnswer::Body() {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (size_t i = 0; i < vectors_.size(); ++i) {
    json.BeginObject().Key("object").String("embedding");
    json.Key("index").Int(static_cast<int64_t>(i)).Key("embedding");
    if (base64_) {
      json.String(Base64(vectors_[i]));
    } else {
      json.BeginArray();
      for (const float x : vectors_[i]) json.Float(x);
      json.EndArray();
    }
    json.EndObject();
  }
  json.EndArray().Key("model").String(model_);
  json.Key("usage").BeginObject().Key("prompt_tokens").Int(usage().prompt_tokens);
  json.Key("total_tokens").Int(usage().prompt_tokens).EndObject().EndObject();
  return body;
}

}  // namespace cuvil::server::openai
