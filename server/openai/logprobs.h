// Log probabilities in OpenAI's two shapes. The values are the engine's: after bias and penalties,
// before temperature. A token's spelling is its bytes with broken UTF-8 replaced; `bytes` has them
// as they are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/sampling.h"
#include "text/tokenizer.h"

namespace cuvil::server::openai {

// Where the next token's text begins in the answer's. Tokens that share a character all begin where
// it does; those without text (control tokens, unless the prompt spells them) where the next does.
struct TextPosition {
  size_t characters = 0;
  std::string open;  // the bytes of a character that is not whole yet
};

// How many of the tokens are the echoed prompt's, which they start with.
struct EchoedTokens {
  size_t tokens = 0;
  bool first_is_added = false;  // it has no text in the prompt
};

// {"content":[{"token","logprob","bytes","top_logprobs":[…]}],"refusal":null}
void AppendChatLogprobs(const text::Tokenizer& tokenizer,
                        absl::Span<const engine::SampledToken> tokens, std::string* out);

// {"tokens":[…],"token_logprobs":[…],"top_logprobs":[{…}],"text_offset":[…]}. The
// first token of an echoed prompt has no value (null). *position moves on, so that chunks continue
// each other.
void AppendCompletionLogprobs(const text::Tokenizer& tokenizer,
                              absl::Span<const engine::SampledToken> tokens,
                              const EchoedTokens& echoed, TextPosition* position, std::string* out);

}  // namespace cuvil::server::openai
