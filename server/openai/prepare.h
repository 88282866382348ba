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
#include "server/openai/request_body.h"

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

// The same for a body that came typed: what the backend is asked. Of `body` the fields of
// TypedTable, messages and one prompt. max_tokens left out is the rest of the context for both
// kinds of prompt; candidates above n may be streamed. `id` of the result is left empty.
absl::StatusOr<GenerateRequest> PrepareTyped(const RequestBody& body, const CallContext& context);
absl::StatusOr<GenerateRequest> PrepareTypedEmbedding(const RequestBody& body,
                                                      const CallContext& context);

// The tokens of a text or a conversation, and the bytes of tokens, control tokens spelled out.
absl::StatusOr<std::vector<int32_t>> TokensOf(const RequestBody& body, const ServedModel& model);
absl::StatusOr<std::string> TextOf(const RequestBody& body, const ServedModel& model);
// The model a body names; the error is about "model".
absl::StatusOr<std::shared_ptr<const ServedModel>> FindModel(Backend* backend,
                                                             const RequestBody& body);

// These need no step: the JSON of the answer. vLLM's shapes.
absl::StatusOr<std::string> Tokenize(std::string_view body, Backend* backend);
absl::StatusOr<std::string> Detokenize(std::string_view body, Backend* backend);

}  // namespace cuvil::server::openai
