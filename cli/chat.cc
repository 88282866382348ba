#include "cli/chat.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/process.h"
#include "cli/prompt.h"

namespace cuvil::cli {
namespace {

using Messages = std::vector<text::ChatTemplate::Message>;

constexpr char kHello[] = "/bye or Ctrl-D ends, /clear forgets, Ctrl-C stops an answer\n";

// What belongs to the dialogue, not to the answers: stderr, so that answers can be redirected.
void Say(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

enum class Typed { kLine, kEnd, kInterrupted };

// Reads lines from standard input by hand: stdio would swallow the interruption.
class LineReader {
 public:
  Typed Next(std::string* line) {
    IdleScope idle;
    for (;;) {
      const size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        line->assign(pending_, 0, end);
        pending_.erase(0, end + 1);
        return Typed::kLine;
      }
      char buffer[4096];
      const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR && idle.interrupts() > 0) {
        pending_.clear();
        return Typed::kInterrupted;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        line->swap(pending_);
        pending_.clear();
        return line->empty() ? Typed::kEnd : Typed::kLine;
      }
      if (pending_.size() + static_cast<size_t>(n) > kPromptBytesMax) return Typed::kEnd;
      pending_.append(buffer, static_cast<size_t>(n));
    }
  }

 private:
  std::string pending_;
};

class Conversation {
 public:
  Conversation(engine::Engine& engine, engine::Sampler& sampler, engine::Request request,
               ChatPrompt prompt, const std::optional<std::string>& system)
      : engine_(engine),
        sampler_(sampler),
        request_(std::move(request)),
        prompt_(std::move(prompt)) {
    if (system.has_value()) start_.push_back({"system", *system, Json::object()});
    messages_ = start_;
  }

  void Clear() { messages_ = start_; }

  // Streams the answer to one message. An error leaves the conversation as it was.
  absl::Status Answer(const std::string& line) {
    RETURN_IF_ERROR(CheckUtf8(line, "the message"));
    Messages messages = messages_;
    messages.push_back({"user", line, Json::object()});
    ASSIGN_OR_RETURN(request_.prompt, prompt_.Tokens(messages));
    if (static_cast<int64_t>(request_.prompt.size()) >= engine_.context()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the conversation has ", request_.prompt.size(), " tokens and the context holds ",
          engine_.context(), "; /clear starts a new one"));
    }
    AnswerScope answer;
    absl::Status written;
    const auto on_text = [&written](const std::string& text) {
      written = WriteOut(std::string_view(text));
      return written.ok();
    };
    ASSIGN_OR_RETURN(engine::Result result,
                     engine::Generate(engine_, sampler_, request_, on_text, answer.cancel()));
    RETURN_IF_ERROR(WorkFailed(written));
    ++request_.sampling.seed;
    messages.push_back({"assistant", std::move(result.text), Json::object()});
    messages_ = std::move(messages);
    return WriteOut(std::string_view("\n"));
  }

 private:
  engine::Engine& engine_;
  engine::Sampler& sampler_;
  engine::Request request_;
  ChatPrompt prompt_;
  Messages start_, messages_;
};

}  // namespace

absl::StatusOr<int> Chat(engine::Engine& engine, engine::Sampler& sampler, engine::Request request,
                         const std::optional<std::string>& system) {
  ASSIGN_OR_RETURN(ChatPrompt prompt, ChatPrompt::Create(engine.model().tokenizer()));
  Conversation conversation(engine, sampler, std::move(request), std::move(prompt), system);
  LineReader reader;
  bool interrupted = false;  // the last thing that happened at the prompt was Ctrl-C
  Say(kHello);
  for (;;) {
    Say("> ");
    std::string line;
    const Typed typed = reader.Next(&line);
    if (typed == Typed::kInterrupted) {
      Say("\n");
      if (interrupted) return kInterrupted;
      interrupted = true;
      Say("Ctrl-C again or /bye ends\n");
      continue;
    }
    interrupted = false;
    if (typed == Typed::kEnd) {
      Say("\n");
      return kDone;
    }
    if (line == "/bye") return kDone;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/clear") {
      conversation.Clear();
      continue;
    }
    const absl::Status status = conversation.Answer(line);
    // A message that cannot be answered is the person's to change; anything else ends the chat.
    if (!status.ok() && ExitCode(status) != kRequestWrong) return status;
    PrintError(status);
  }
}

}  // namespace cuvil::cli
