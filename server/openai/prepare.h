// From the bytes of a request body to what the backend is asked and who writes the answer. Pure
// work on text: no sockets, nothing is submitted. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/api/backend.h"
#include "server/openai/answer.h"

namespace cuvil::server::openai {

struct CallContext {
  Backend* backend = nullptr;
  std::string tenant;
  std::string id;       // makes the answer's id unique: hexadecimal digits
  int64_t created = 0;  // seconds since 1970
  uint64_t seed = 0;    // for requests that name none
  int64_t deadline_ms = 0;
};

struct Call {
  std::string id;     // "chatcmpl-…"
  std::string model;  // served name
  bool stream = false;
  // One for each prompt, in order.
  std::vector<GenerateRequest> parts;
  std::unique_ptr<Answer> answer;
};

// Errors are for ErrorOf: InvalidArgument with the field, or what Backend::Find says.
absl::StatusOr<Call> PrepareChat(std::string_view body, const CallContext& context);
absl::StatusOr<Call> PrepareCompletion(std::string_view body, const CallContext& context);
absl::StatusOr<Call> PrepareEmbedding(std::string_view body, const CallContext& context);

// These need no step: the JSON of the answer. vLLM's shapes.
absl::StatusOr<std::string> Tokenize(std::string_view body, Backend* backend);
absl::StatusOr<std::string> Detokenize(std::string_view body, Backend* backend);

}  // namespace cuvil::server::openai
