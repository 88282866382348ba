// The fields of every endpoint, once.
#include "server/openai/field.h"
#include "server/openai/read_messages.h"
#include "server/openai/read_values.h"

namespace cuvil::server::openai {
namespace {

using B = RequestBody;
// Lengths and counts of tokens: no context is longer.
constexpr double kTokensMax = 2147483647;
constexpr double kAnyInteger = 9.3e18;

constexpr char kMessagesSchema[] =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":{)"
    R"("role":{"type":"string","enum":["system","developer","user","assistant"]},)"
    R"("content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object"}},)"
    R"({"type":"null"}]},"name":{"type":"string"}}}})";
constexpr char kPromptSchema[] =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},)"
    R"({"type":"array","items":{"type":"integer","minimum":0}},)"
    R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}}}]})";
constexpr char kStopSchema[] =
    R"({"oneOf":[{"type":"string","minLength":1},)"
    R"({"type":"array","maxItems":4,"items":{"type":"string","minLength":1}}]})";
constexpr char kTokensSchema[] = R"({"type":"array","items":{"type":"integer","minimum":0}})";
constexpr char kBiasSchema[] =
    R"({"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}})";
constexpr char kStreamOptionsSchema[] =
    R"({"type":"object","properties":{"include_usage":{"type":"boolean"}}})";
constexpr char kObjectSchema[] = R"({"type":"object"})";
constexpr char kArraySchema[] = R"({"type":"array","items":{"type":"object"}})";

constexpr Field kModel[] = {
    {"model", &B::model, "The served model's name; left out, the default one.", 0, kLabelBytesMax},
};

// Known from OpenAI's clients; no effect here.
constexpr Field kWithoutEffect[] = {
    {"user", Ignored{}, "Accepted, no effect.", 0, kLabelBytesMax},
    {"safety_identifier", Ignored{}, "Accepted, no effect.", 0, kLabelBytesMax},
    {"prompt_cache_key", Ignored{}, "Accepted, no effect: the cache finds prefixes by content.", 0,
     kLabelBytesMax},
    {"prompt_cache_retention", Ignored{}, "Accepted, no effect.", 0, kLabelBytesMax},
    {"service_tier", Ignored{}, "Accepted, no effect.", 0, kLabelBytesMax},
    {"reasoning_effort", Ignored{}, "Accepted, no effect.", 0, kLabelBytesMax},
    {"verbosity", Ignored{}, "Accepted, no effect.", 0, kLabelBytesMax},
    {"store", Ignored{}, "Accepted, no effect: nothing is stored."},
    {"prediction", Ignored{}, "Accepted, no effect."},
    {"metadata", Reader{ReadMetadata}, "Accepted, no effect. At most 16 pairs.", 0, 0,
     kObjectSchema},
};

constexpr Field kSampling[] = {
    {"temperature", &B::temperature, "0 takes the likeliest token; default 1.", 0, 2},
    {"top_p", &B::top_p, "Draws from the likeliest tokens that hold this share; default 1.", 0, 1},
    {"top_k", &B::top_k, "Draws from this many likeliest tokens; 0 or -1: all.", -1, kTokensMax},
    {"min_p", &B::min_p, "Leaves out tokens below this share of the likeliest one's.", 0, 1},
    {"presence_penalty", &B::presence_penalty, "Against tokens that have come.", -2, 2},
    {"frequency_penalty", &B::frequency_penalty, "Against tokens by how often they came.", -2, 2},
    {"repetition_penalty", &B::repetition_penalty, "Divides what has come; 1: off.", 0, 100,
     nullptr, true},
    {"logit_bias", Reader{ReadLogitBias}, "Added to the logits of token ids.", 0, 0, kBiasSchema},
    {"seed", &B::seed, "The same seed draws the same tokens.", -kAnyInteger, kAnyInteger},
    {"max_tokens", &B::max_tokens, "Tokens of each choice, at most.", 0, kTokensMax},
    {"min_tokens", &B::min_tokens, "Nothing ends a choice before it has this many.", 0, kTokensMax},
    {"stop", Reader{ReadStop}, "Up to 4 strings that end the text; they are not part of it.", 0, 0,
     kStopSchema},
    {"stop_token_ids", Reader{ReadStopTokens}, "Tokens that end the text.", 0, 0, kTokensSchema},
    {"include_stop_str_in_output", &B::include_stop, "The stop string stays in the text."},
    {"ignore_eos", &B::ignore_eos, "The model's end token does not end the text."},
    {"n", &B::n, "Choices for each prompt.", 1, kChoicesMax},
    {"stream", &B::stream, "Send text as it comes, as server-sent events."},
    {"stream_options", Reader{ReadStreamOptions}, "With stream: {\"include_usage\": true}.", 0, 0,
     kStreamOptionsSchema},
    {"timings", &B::timings, "Extension: the answer says how long queue and prefill took."},
    {"priority", &B::priority, "Extension: lower runs first.", -100, 100},
    {"cache_salt", &B::cache_salt, "Extension: only requests with the same salt share a prefix.", 0,
     kLabelBytesMax},
    {"max_kv_len", &B::max_kv_len, "Extension: positions whose keys and values are kept; 0: all.",
     0, kTokensMax},
    {"kv_sinks", &B::kv_sinks, "Extension: first positions that trimming never drops.", 0,
     kTokensMax},
    {"response_format", Reader{ReadResponseFormat}, "Only {\"type\": \"text\"}.", 0, 0,
     kObjectSchema},
    // Constraints on the text that are not there yet: ignoring them would look like success.
    {"structured_outputs", Refused{}, "Not supported."},
    {"guided_json", Refused{}, "Not supported."},
    {"guided_regex", Refused{}, "Not supported."},
    {"guided_choice", Refused{}, "Not supported."},
    {"guided_grammar", Refused{}, "Not supported."},
    {"grammar", Refused{}, "Not supported."},
    {"json_schema", Refused{}, "Not supported."},
    {"bad_words", Refused{}, "Not supported; logit_bias forbids tokens."},
    {"allowed_token_ids", Refused{}, "Not supported."},
    {"use_beam_search", Refused{}, "Not supported."},
    {"prompt_embeds", Refused{}, "Not supported."},
};

constexpr Field kChat[] = {
    {"messages", Reader{ReadMessages}, "The conversation so far.", 0, 0, kMessagesSchema},
    {"max_completion_tokens", &B::max_completion_tokens,
     "Tokens of each choice, at most; wins over max_tokens; default: the rest of the context.", 1,
     kTokensMax},
    {"logprobs", &B::logprobs,
     "Report log probabilities (after bias and penalties, before temperature)."},
    {"top_logprobs", &B::top_logprobs, "Alternatives reported for each token.", 0, 20},
    {"add_generation_prompt", &B::add_generation_prompt, "Extension: open the assistant's turn."},
    {"chat_template_kwargs", Reader{ReadTemplateKwargs}, "Extension: variables of the template.", 0,
     0, kObjectSchema},
    {"tools", Reader{ReadTools}, "Not supported yet, unless tool_choice is \"none\".", 0, 0,
     kArraySchema},
    {"functions", Reader{ReadTools}, "Not supported yet.", 0, 0, kArraySchema},
    {"tool_choice", Reader{ReadToolChoice}, "\"none\" or \"auto\".", 0, 0, R"({})"},
    {"function_call", Reader{ReadToolChoice}, "\"none\" or \"auto\".", 0, 0, R"({})"},
    {"parallel_tool_calls", Ignored{}, "Accepted, no effect."},
    {"modalities", Reader{ReadModalities}, "Only [\"text\"].", 0, 0,
     R"({"type":"array","items":{"type":"string"}})"},
    {"audio", Refused{}, "Not supported."},
    {"web_search_options", Refused{}, "Not supported."},
    {"chat_template", Refused{}, "Not supported: the model's own template is used."},
    {"continue_final_message", Refused{}, "Not supported."},
};

constexpr Field kCompletion[] = {
    {"prompt", Reader{ReadPrompts}, "Text or tokens to go on from, or a list of those.", 0, 0,
     kPromptSchema},
    {"best_of", &B::best_of, "Candidates of which the n best come back.", 0, 20},
    {"echo", &B::echo, "The answer starts with the prompt."},
    {"logprobs", &B::completion_logprobs, "Alternatives reported for each token.", 0, 5},
    {"parse_special", &B::parse_special,
     "Extension: control tokens spelled in a text prompt count as such."},
    {"add_special_tokens", &B::add_special_tokens,
     "Extension: put the token that begins a text before the prompt."},
    {"suffix", Refused{}, "Not supported."},
};

constexpr Field kTyped[] = {
    {"best_of", &B::best_of, "Candidates of which the n best are named at the end.", 0, 20},
    {"logprobs", &B::completion_logprobs, "Alternatives reported for each token.", 0, 20},
    {"prompt_logprobs", &B::prompt_logprobs, "Alternatives reported for each prompt token.", 0, 20},
};

constexpr Field kEmbedding[] = {
    {"input", Reader{ReadPrompts}, "Text or tokens, or a list of those, at most 2048.", 0, 0,
     kPromptSchema},
    {"encoding_format", Reader{ReadEncodingFormat}, "\"float\" or \"base64\".", 0, 0,
     R"({"type":"string","enum":["float","base64"]})"},
    {"dimensions", &B::dimensions, "Only the model's own size.", 1, kTokensMax},
    {"priority", &B::priority, "Extension: lower runs first.", -100, 100},
};

constexpr Field kTokenize[] = {
    {"prompt", Reader{ReadPrompts}, "One text.", 0, 0, R"({"type":"string"})"},
    {"messages", Reader{ReadMessages}, "Or a conversation, through the chat template.", 0, 0,
     kMessagesSchema},
    {"add_special_tokens", &B::add_special_tokens, "Put the token that begins a text in front."},
    {"parse_special", &B::parse_special, "Control tokens spelled in the text count as such."},
    {"add_generation_prompt", &B::add_generation_prompt, "Open the assistant's turn."},
    {"chat_template_kwargs", Reader{ReadTemplateKwargs}, "Variables of the template.", 0, 0,
     kObjectSchema},
    {"return_token_strs", &B::token_strings, "Also spell each token."},
};

constexpr Field kDetokenize[] = {
    {"tokens", Reader{ReadTokens}, "Token ids.", 0, 0, kTokensSchema},
};

}  // namespace

const FieldTable& ChatTable() {
  static const auto* table = new FieldTable("ChatCompletionRequest", {"messages"},
                                            {kModel, kSampling, kWithoutEffect, kChat});
  return *table;
}

const FieldTable& CompletionTable() {
  static const auto* table = new FieldTable("CompletionRequest", {"prompt"},
                                            {kModel, kSampling, kWithoutEffect, kCompletion});
  return *table;
}

const FieldTable& EmbeddingTable() {
  static const auto* table =
      new FieldTable("EmbeddingRequest", {"input"}, {kModel, kWithoutEffect, kEmbedding});
  return *table;
}

const FieldTable& TokenizeTable() {
  static const auto* table = new FieldTable("TokenizeRequest", {}, {kModel, kTokenize});
  return *table;
}

const FieldTable& DetokenizeTable() {
  static const auto* table = new FieldTable("DetokenizeRequest", {"tokens"}, {kModel, kDetokenize});
  return *table;
}

const FieldTable& TypedTable() {
  static const auto* table = new FieldTable("GenerateRequest", {}, {kModel, kSampling, kTyped});
  return *table;
}

}  // namespace cuvil::server::openai
