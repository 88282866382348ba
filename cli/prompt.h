// From what a person typed to prompt tokens: as text for the model as it stands, or as messages
// through the model's chat template, where nothing a person writes can become a control token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace cuvil::cli {

// 16 MiB of text is more than any context holds.
inline constexpr size_t kPromptBytesMax = size_t{16} << 20;

// InvalidArgument naming `what` and the first bad byte.
absl::Status CheckUtf8(std::string_view text, std::string_view what);

// A file, or standard input for "-". At most `limit` bytes.
absl::StatusOr<std::string> ReadInput(const std::string& path, size_t limit);

// The text as it stands, after the token that begins a text where the vocabulary wants one.
absl::StatusOr<std::vector<int32_t>> RawPrompt(const text::Tokenizer& tokenizer,
                                               std::string_view prompt, bool parse_special);

// The model's chat template. FailedPrecondition when the model has none.
class ChatPrompt {
 public:
  static absl::StatusOr<ChatPrompt> Create(std::shared_ptr<const text::Tokenizer> tokenizer);
  // The prompt for the assistant's next message.
  absl::StatusOr<std::vector<int32_t>> Tokens(
      const std::vector<text::ChatTemplate::Message>& messages) const;

 private:
  ChatPrompt(std::shared_ptr<const text::Tokenizer> tokenizer, text::ChatTemplate chat)
      : tokenizer_(std::move(tokenizer)), template_(std::move(chat)) {}
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::ChatTemplate template_;
};

// InvalidArgument when a prompt is empty or longer than the context.
absl::Status CheckPromptLength(size_t tokens, int64_t context);

}  // namespace cuvil::cli
