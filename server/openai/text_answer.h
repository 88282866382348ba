// Answers of /v1/chat/completions and /v1/completions. The text of a choice is the sum of its
// events' texts, streamed or not: byte for byte the same.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/openai/answer.h"
#include "server/openai/json_writer.h"
#include "server/openai/logprobs.h"
#include "text/tokenizer.h"

namespace cuvil::server::openai {

// An echoed prompt.
struct Echo {
  std::string text;
  // The first token was put in front of the text and is no part of it.
  bool first_is_added = false;
};

struct TextAnswerOptions {
  bool chat = true;
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  int parts = 1;
  int choices = 1;  // returned, for each part
  bool stream = false, include_usage = false, timings = false;
  bool logprobs = false;
  // Completions with echo: what each part's choices start with.
  bool echo = false;
  std::vector<Echo> echoes;
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

class TextAnswer : public Answer {
 public:
  explicit TextAnswer(TextAnswerOptions options);

  void Take(int part, Events events, std::string* sse) override;
  std::string Body() override;

 protected:
  void WriteFailure(const absl::Status& status, std::string* sse) override;

 private:
  struct Choice {
    std::string text;
    std::vector<engine::SampledToken> tokens;  // when logprobs were asked for
    std::optional<FinishReason> end;
    TextPosition position;  // for text_offset
  };
  struct Part {
    bool introduced = false;
    std::vector<Choice> choices;  // candidates
    std::vector<int> best;
    std::vector<engine::SampledToken> prompt_logprobs;
  };
  // The new tokens and text of one choice.
  struct Delta {
    std::string text;
    std::vector<engine::SampledToken> tokens;
    std::optional<FinishReason> end;
  };

  void Introduce(int part, std::string* sse);
  void TakeChoice(int part, int choice, Delta delta, std::string* sse);
  std::vector<std::pair<int, Delta>> Split(Events* events) const;

  // One chunk: `payload` writes what stands between the index and the finish reason.
  void WriteChunk(int index, std::string_view text, bool role, const std::string& logprobs,
                  std::optional<FinishReason> end, std::string* sse) const;
  void WriteUsageChunk(std::string* sse) const;
  void WriteUsage(JsonWriter* json) const;
  void WriteTimings(JsonWriter* json) const;
  void WriteWholeChoice(int index, const Part& part, int part_index, const Choice& choice,
                        JsonWriter* json) const;
  std::string LogprobsOf(const std::vector<engine::SampledToken>& tokens,
                         TextPosition* position) const;
  Choice& ChoiceOf(int part, int choice);

  TextAnswerOptions options_;
  std::string chunk_head_;  // data: {"id":…,"choices":[
  std::vector<Part> parts_;
};

}  // namespace cuvil::server::openai
