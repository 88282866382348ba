// A model's chat template: messages to a prompt. The language is a subset of Jinja, run by an own
// interpreter in which names resolve to mapping keys, loop fields and a short list of methods, and
// nothing else; steps, text and nesting have limits, so a hostile template can only fail.
// Immutable after Parse; any thread may render.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/segment.h"

namespace cuvil::text {

namespace jinja {
struct Parsed;
}

class ChatTemplate {
 public:
  // InvalidArgument names the line and what is wrong or not supported there.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  struct Message {
    std::string role, content;
    // More keys of the message ("tool_calls", "name", ...); "role" and "content" in it are ignored,
    // unless it holds a "content" that is no string: parts, or null.
    Json extra = Json::object();
  };

  struct Inputs {
    std::vector<Message> messages;
    bool add_generation_prompt = true;
    std::string bos_token, eos_token;
    Json extra = Json::object();      // more variables: "tools", "enable_thinking", ...
    std::optional<int64_t> now = {};  // seconds since 1970 for strftime_now; default: the clock
  };

  // InvalidArgument when the template refuses the messages, meets an error or exceeds a limit.
  absl::StatusOr<std::string> Render(const Inputs& inputs) const;

  // The same text in stretches: what came with the inputs is untrusted, what the template itself
  // says and the two tokens are trusted. Tokenizer::EncodeSegments keeps them apart.
  absl::StatusOr<std::vector<Segment>> RenderSegments(const Inputs& inputs) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const jinja::Parsed> parsed_;
};

}  // namespace cuvil::text
