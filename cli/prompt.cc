#include "cli/prompt.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "text/utf8.h"

namespace cuvil::cli {
namespace {

absl::StatusOr<std::string> ReadStandardInput(size_t limit) {
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return absl::InternalError(
          absl::StrCat("cannot read standard input: ", std::strerror(errno)));
    }
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat("standard input is longer than the limit of ", limit, " bytes; shorten it"));
    }
    out.append(buffer, static_cast<size_t>(n));
  }
}

std::string SpellingOf(const text::Tokenizer& tokenizer, int64_t id) {
  return id < 0 ? "" : tokenizer.spec().tokens[static_cast<size_t>(id)];
}

}  // namespace

absl::Status CheckUtf8(std::string_view text, std::string_view what) {
  const size_t bad = text::FirstInvalidUtf8(text);
  if (bad == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Sv(what), " is not valid UTF-8 at byte ", bad, "; convert it to UTF-8"));
}

absl::StatusOr<std::string> ReadInput(const std::string& path, size_t limit) {
  return path == "-" ? ReadStandardInput(limit) : ReadFile(path, limit);
}

absl::StatusOr<std::vector<int32_t>> RawPrompt(const text::Tokenizer& tokenizer,
                                               std::string_view prompt, bool parse_special) {
  return tokenizer.Encode(prompt,
                          {.parse_special = parse_special, .add_bos = tokenizer.spec().add_bos});
}

absl::StatusOr<ChatPrompt> ChatPrompt::Create(std::shared_ptr<const text::Tokenizer> tokenizer) {
  if (tokenizer->spec().chat_template.empty()) {
    return absl::FailedPreconditionError(
        "the model has no chat template; pass --raw to give the prompt to it as it stands");
  }
  ASSIGN_OR_RETURN(text::ChatTemplate chat,
                   text::ChatTemplate::Parse(tokenizer->spec().chat_template));
  return ChatPrompt(std::move(tokenizer), std::move(chat));
}

absl::StatusOr<std::vector<int32_t>> ChatPrompt::Tokens(
    const std::vector<text::ChatTemplate::Message>& messages) const {
  const text::VocabSpec& spec = tokenizer_->spec();
  text::ChatTemplate::Inputs inputs;
  inputs.messages = messages;
  inputs.bos_token = SpellingOf(*tokenizer_, spec.bos);
  inputs.eos_token = SpellingOf(*tokenizer_, spec.eos);
  ASSIGN_OR_RETURN(const std::vector<text::Segment> segments, template_.RenderSegments(inputs));
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_->EncodeSegments(segments, {}));
  // Many templates write the first token themselves; it must not come twice.
  const bool has_bos = !ids.empty() && ids.front() == spec.bos;
  if (spec.add_bos && spec.bos >= 0 && !has_bos) {
    ids.insert(ids.begin(), static_cast<int32_t>(spec.bos));
  }
  return ids;
}

absl::Status CheckPromptLength(size_t tokens, int64_t context) {
  if (tokens == 0) {
    return absl::InvalidArgumentError("the prompt has no tokens; write at least one character");
  }
  if (static_cast<int64_t>(tokens) > context) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", tokens,
                                                   " tokens and the model's context holds ",
                                                   context, "; shorten the prompt"));
  }
  return absl::OkStatus();
}

}  // namespace cuvil::cli
