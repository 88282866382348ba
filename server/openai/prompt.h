// Prompts of requests to tokens. A person's text never becomes a control token: messages go through
// the chat template in segments, text prompts are plain text unless the request asks otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/api/backend.h"
#include "server/openai/request_body.h"

namespace cuvil::server::openai {

// The messages as the model's template writes them. InvalidArgument when the model has no template
// or its template refuses them.
absl::StatusOr<std::vector<int32_t>> ChatTokens(const ServedModel& model, const RequestBody& body);

// One text or token prompt; `field` is "prompt" or "input". InvalidArgument for ids outside the
// vocabulary and for a prompt without tokens.
absl::StatusOr<std::vector<int32_t>> PromptTokens(const ServedModel& model, const RequestBody& body,
                                                  const Prompt& prompt, const char* field);

// InvalidArgument with code context_length_exceeded unless prompt and answer fit the context.
// max_new < 0: at least one token must.
absl::Status CheckLength(const ServedModel& model, size_t prompt_tokens, int64_t max_new,
                         const char* field);

// InvalidArgument naming the first id outside the vocabulary.
absl::Status CheckTokens(const ServedModel& model, const std::vector<int32_t>& tokens,
                         const char* field);

}  // namespace cuvil::server::openai
