// The answer of /v1/embeddings: one vector of length 1 for each input, as numbers or as base64 of
// little-endian float32 (what OpenAI's clients ask for by default).
#pragma once

#include <string>
#include <vector>

#include "server/openai/answer.h"

namespace cuvil::server::openai {

// Scales to length 1; zero stays zero. False when a value is not finite.
bool Normalise(std::vector<float>* vector);

class EmbeddingAnswer : public Answer {
 public:
  EmbeddingAnswer(std::string model, int parts, bool base64);

  void Take(int part, Events events, std::string* sse) override;
  std::string Body() override;

 protected:
  void WriteFailure(const absl::Status&, std::string*) override {}

 private:
  std::string model_;
  bool base64_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace cuvil::server::openai
