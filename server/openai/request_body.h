// What a request body said, as plain data: every field of every endpoint, checked as far as that
// needs no model. Fields that an endpoint does not have keep their defaults.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"

namespace cuvil::server::openai {

// One entry of "prompt" or "input": text, or tokens when is_tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
  bool is_tokens = false;
};

struct RequestBody {
  std::string model;  // "": the default one

  // What to work on.
  std::vector<text::ChatTemplate::Message> messages;
  std::vector<Prompt> prompts;  // "prompt", "input"
  std::vector<int32_t> tokens;  // of /detokenize
  bool has_messages = false, has_prompt = false, has_tokens = false;
  bool parse_special = false;      // control tokens spelled in a text prompt count
  bool add_special_tokens = true;  // the token that begins a text
  bool add_generation_prompt = true;
  Json template_kwargs = Json::object();

  // Choice of tokens.
  double temperature = 1, top_p = 1, min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t top_k = 0;
  std::optional<int64_t> seed;
  std::map<int32_t, double> logit_bias;

  // Where it ends.
  std::optional<int64_t> max_tokens, max_completion_tokens;
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false, ignore_eos = false;

  // What is answered.
  int64_t n = 1, best_of = 0;
  bool stream = false, has_stream_options = false, include_usage = false;
  bool logprobs = false;                // chat
  std::optional<int64_t> top_logprobs;  // chat
  std::optional<int64_t> completion_logprobs;
  std::optional<int64_t> prompt_logprobs;  // typed door only
  bool echo = false, timings = false;
  bool base64 = false;
  std::optional<int64_t> dimensions;
  bool token_strings = false;

  // How it is run.
  int64_t priority = 0;
  std::string cache_salt;
  std::optional<int64_t> max_kv_len, kv_sinks;

  // Tools: known, refused unless tool_choice is "none".
  bool has_tools = false, no_tool_choice = false, asks_for_tool = false;
};

}  // namespace cuvil::server::openai
