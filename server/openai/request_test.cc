// Request bodies: what is read, what is refused and which field is blamed.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/openai/error.h"
#include "server/openai/fake_backend.h"
#include "server/openai/prepare.h"

namespace cuvil::server::openai {
namespace {

using PrepareCall = absl::StatusOr<Call> (*)(std::string_view, const CallContext&);

class RequestTest : public testing::Test {
 protected:
  absl::StatusOr<Call> Run(PrepareCall prepare, std::string_view body) {
    CallContext context;
    context.backend = &backend_;
    context.id = "1";
    context.tenant = "t";
    context.seed = 99;
    return prepare(body, context);
  }
  absl::StatusOr<Call> Chat(std::string_view more) {
    return Run(PrepareChat,
               absl::StrCat(R"({"messages":[{"role":"user","content":"hi"}],)", Sv(more), "}"));
  }
  absl::StatusOr<Call> Complete(std::string_view more) {
    return Run(PrepareCompletion, absl::StrCat(R"({"prompt":"hi",)", Sv(more), "}"));
  }
  void ExpectRefused(const absl::StatusOr<Call>& call, std::string_view param,
                     std::string_view body) {
    ASSERT_FALSE(call.ok()) << body;
    const ApiError error = ErrorOf(call.status());
    EXPECT_EQ(error.status, 400) << body << call.status();
    EXPECT_EQ(error.param, param) << body << call.status();
    EXPECT_FALSE(ShowsInside(error.message)) << error.message;
  }
  std::string PromptOf(const Call& call) {
    return (*backend_.Find(""))->tokenizer()->Decode(call.parts[0].prompt, true);
  }

  FakeBackend backend_;
};

TEST_F(RequestTest, IntegersAreIntegersInTheirRange) {
  for (const char* field : {"n", "max_tokens", "max_completion_tokens", "min_tokens", "top_k",
                            "top_logprobs", "priority", "max_kv_len", "kv_sinks", "seed"}) {
    for (const char* value : {"1.9", "\"4\"", "true", "9223372036854775808", "1e18", "[]", "{}",
                              "18446744073709551615", "1.0"}) {
      const std::string body = absl::StrCat("\"", field, "\":", value);
      ExpectRefused(Chat(body), field, body);
    }
  }
  for (const char* body :
       {"\"n\":0", "\"n\":-1", "\"n\":129", "\"n\":2147483647", "\"n\":1000000000",
        "\"max_completion_tokens\":0", "\"min_tokens\":-1", "\"top_k\":-2", "\"top_k\":4294967296",
        "\"top_logprobs\":21", "\"top_logprobs\":-1", "\"priority\":101", "\"max_kv_len\":-1"}) {
    const std::string field(body + 1, std::string_view(body).find('"', 1) - 1);
    ExpectRefused(Chat(body), field, body);
  }
  ExpectRefused(Complete(R"("best_of":21)"), "best_of", "best_of");
  ExpectRefused(Complete(R"("logprobs":6)"), "logprobs", "logprobs");
  ExpectRefused(Complete(R"("logprobs":true)"), "logprobs", "logprobs");
  EXPECT_EQ(Chat(R"("seed":-5)")->parts[0].sampling.seed, static_cast<uint64_t>(-5));
  EXPECT_EQ(Chat(R"("seed":9223372036854775807)")->parts[0].sampling.seed, INT64_MAX);
  EXPECT_EQ(Chat(R"("n":null)")->parts[0].sampling.seed, 99u);
}

TEST_F(RequestTest, NumbersAreFiniteAndInRange) {
  for (const char* field : {"temperature", "top_p", "min_p", "repetition_penalty",
                            "presence_penalty", "frequency_penalty"}) {
    for (const char* value : {"\"nan\"", "1e300", "-3", "true", "[]", "18446744073709551615"}) {
      const std::string body = absl::StrCat("\"", field, "\":", value);
      ExpectRefused(Chat(body), field, body);
    }
    for (const char* value : {"NaN", "Infinity", "1e400", "-1e999", "+1", "01", ".5"}) {
      const std::string body = absl::StrCat("\"", field, "\":", value);
      ExpectRefused(Chat(body), "", body);  // not JSON at all
    }
  }
  ExpectRefused(Chat(R"("repetition_penalty":0)"), "repetition_penalty", "0");
  EXPECT_EQ(Chat(R"("temperature":-0.0)")->parts[0].sampling.temperature, 0);
  EXPECT_EQ(Chat(R"("temperature":5e-324)")->parts[0].sampling.temperature, 5e-324);
  EXPECT_GT(Chat(R"("top_p":0)")->parts[0].sampling.top_p, 0);
}

TEST_F(RequestTest, ValuesOfOtherFields) {
  const struct {
    const char* body;
    const char* param;
  } cases[] = {
      {R"("stop":"")", "stop"},
      {R"("stop":[""])", "stop"},
      {R"("stop":["a","b","c","d","e"])", "stop"},
      {R"("stop":5)", "stop"},
      {R"("stop":[1])", "stop"},
      {R"("stop_token_ids":[-1])", "stop_token_ids"},
      {R"("stop_token_ids":[262])", "stop_token_ids"},
      {R"("stop_token_ids":[151645])", "stop_token_ids"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
      {R"("logit_bias":{"262":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"1.5":1})", "logit_bias"},
      {R"("logit_bias":{"a":1})", "logit_bias"},
      {R"("logit_bias":{"4294967297":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"1":"1"})", "logit_bias"},
      {R"("logit_bias":{"1":1,"01":1})", "logit_bias"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("stream":1)", "stream"},
      {R"("stream":"true")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("stream":true,"stream_options":[])", "stream_options"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":{"type":"strng"})", "response_format"},
      {R"("response_format":"text")", "response_format"},
      {R"("tools":[{"type":"function"}])", "tools"},
      {R"("tool_choice":"required")", "tools"},
      {R"("tool_choice":"sometimes")", "tool_choice"},
      {R"("functions":[{}])", "tools"},
      {R"("guided_json":{})", "guided_json"},
      {R"("chat_template":"{{x}}")", "chat_template"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"bos_token":"x"})", "chat_template_kwargs"},
      {R"("modalities":["audio"])", "modalities"},
      {R"("metadata":{"a":1})", "metadata"},
      {R"("kv_sinks":4)", "kv_sinks"},
      {R"("max_kv_len":4)", "max_kv_len"},
      {R"("max_kv_len":64,"kv_sinks":64)", "kv_sinks"},
      {R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("model":5)", "model"},
  };
  for (const auto& one : cases) ExpectRefused(Chat(one.body), one.param, one.body);
  const std::string long_text(513, 'x');
  for (const char* field : {"model", "user", "cache_salt", "prompt_cache_key"}) {
    const std::string body = absl::StrCat("\"", field, "\":\"", long_text, "\"");
    ExpectRefused(Chat(body), field, field);
  }
  for (const char* good :
       {R"("tools":[{"type":"function"}],"tool_choice":"none")", R"("tools":[])",
        R"("tool_choice":"auto")", R"("response_format":{"type":"text"})", R"("stop":null)",
        R"("store":true,"metadata":{"a":"b"},"service_tier":"auto","verbosity":"low")",
        R"("guided_json":null,"unknown":{"a":[1]},"suffix":1,"modalities":["text"])",
        R"("stop":["a","b","c","d"])", R"("logit_bias":{"261":-100,"0":100})"}) {
    EXPECT_TRUE(Chat(good).ok()) << good << Chat(good).status();
  }
}

TEST_F(RequestTest, FieldsReachTheRequest) {
  const auto call = Chat(
      R"("model":"org/tiny","temperature":0.25,"top_p":0.5,"top_k":-1,"min_p":0.125,"n":3,
         "presence_penalty":-1,"frequency_penalty":1,"repetition_penalty":1.5,"seed":7,
         "logit_bias":{"5":-2.5},"stop":["x","yy"],"stop_token_ids":[1,2],"max_tokens":9,
         "max_completion_tokens":8,"min_tokens":2,"ignore_eos":true,"logprobs":true,
         "top_logprobs":4,"include_stop_str_in_output":true,"priority":-3,"cache_salt":"s",
         "max_kv_len":64,"kv_sinks":8,"stream":true)");
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_EQ(call->parts.size(), 1u);
  const GenerateRequest& request = call->parts[0];
  EXPECT_EQ(request.model, "org/tiny");
  EXPECT_EQ(request.id, "chatcmpl-1");
  EXPECT_EQ(request.sampling.temperature, 0.25);
  EXPECT_EQ(request.sampling.top_p, 0.5);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.125);
  EXPECT_EQ(request.sampling.presence_penalty, -1);
  EXPECT_EQ(request.sampling.frequency_penalty, 1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.sampling.logprobs, 4);
  EXPECT_EQ(request.sampling.logit_bias, (std::map<int32_t, double>{{5, -2.5}}));
  EXPECT_EQ(request.choices, 3);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(request.stop_tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(request.max_tokens, 8);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_TRUE(request.ignore_eos && request.include_stop && call->stream);
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.tenant, "t");
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.trim->max_kv_len, 64);
  EXPECT_EQ(request.trim->sinks, 8);
  EXPECT_EQ(Chat(R"("n":1)")->parts[0].max_tokens, -1);
  EXPECT_EQ(Complete(R"("n":1)")->parts[0].max_tokens, 16);
  EXPECT_EQ(Complete(R"("max_tokens":null)")->parts[0].max_tokens, 16);
}

TEST_F(RequestTest, Messages) {
  const auto prompt = [this](std::string_view messages) -> std::string {
    const auto call = Run(PrepareChat, absl::StrCat("{\"messages\":", Sv(messages), "}"));
    return call.ok() ? PromptOf(*call) : std::string(call.status().message());
  };
  EXPECT_EQ(prompt(R"([{"role":"developer","content":"d"},{"role":"user","content":
                   [{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            "system:d<|im_end|>user:a\nb<|im_end|>assistant:");
  EXPECT_EQ(prompt(R"([{"role":"assistant","content":null}])"), "assistant:<|im_end|>assistant:");
  const struct {
    const char* messages;
    const char* param;
  } cases[] = {
      {"[]", "messages"},
      {"{}", "messages"},
      {"[5]", "messages[0]"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"boss","content":"x"}])", "messages[0].role"},
      {R"([{"role":"tool","content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":[]}])", "messages[0].content"},
      {R"([{"role":"user","content":["a"]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":"x"},{"role":"user","content":[{"type":"image_url"}]}])",
       "messages[1].content[0].type"},
      {R"([{"role":"user","content":"x","name":5}])", "messages[0].name"},
      {R"([{"role":"assistant","content":"x","tool_calls":[{}]}])", "messages[0].tool_calls"},
  };
  for (const auto& one : cases) {
    ExpectRefused(Run(PrepareChat, absl::StrCat("{\"messages\":", one.messages, "}")), one.param,
                  one.messages);
  }
  ExpectRefused(Run(PrepareChat, "{}"), "messages", "{}");
}

TEST_F(RequestTest, TextNeverBecomesAControlToken) {
  const auto tokenizer = (*backend_.Find(""))->tokenizer();
  const auto controls = [&](const Call& call) {
    int count = 0;
    for (const int32_t id : call.parts[0].prompt) count += tokenizer->IsControl(id) ? 1 : 0;
    return count;
  };
  const std::string text = "<|im_end|><s>";
  EXPECT_EQ(controls(*Run(PrepareChat, absl::StrCat(R"({"messages":[{"role":"user","content":")",
                                                    text, "\"}]}"))),
            1);  // the template's own
  const std::string prompt = absl::StrCat("{\"prompt\":\"", text, "\"");
  EXPECT_EQ(controls(*Run(PrepareCompletion, prompt + "}")), 0);
  EXPECT_EQ(controls(*Run(PrepareCompletion, prompt + ",\"parse_special\":true}")), 2);
}

TEST_F(RequestTest, PromptsInAllShapesAndTheirLimits) {
  const auto parts = [this](std::string_view prompt) {
    const auto call = Run(PrepareCompletion, absl::StrCat("{\"prompt\":", Sv(prompt), "}"));
    EXPECT_TRUE(call.ok()) << prompt << call.status();
    return call.ok() ? call->parts.size() : 0;
  };
  EXPECT_EQ(parts(R"("hi")"), 1u);
  EXPECT_EQ(parts(R"(["hi","there"])"), 2u);
  EXPECT_EQ(parts("[5,6,7]"), 1u);
  EXPECT_EQ(parts("[[5,6],[7]]"), 2u);
  for (const char* bad :
       {"\"\"", "[]", "[[]]", "[\"\"]", "[\"a\",5]", "[5,\"a\"]", "[[5],\"a\"]", "5", "{}", "true",
        "[-1]", "[262]", "[2147483648]", "[4294967297]", "[1.5]", "[[1.5]]", "[null]"}) {
    const std::string body = absl::StrCat("{\"prompt\":", bad, "}");
    ExpectRefused(Run(PrepareCompletion, body), "prompt", body);
  }
  std::string many = "\"a\"";
  for (int i = 0; i < 99999; ++i) many += ",\"a\"";
  ExpectRefused(Run(PrepareCompletion, absl::StrCat("{\"prompt\":[", many, "]}")), "prompt",
                "many");
  ExpectRefused(Run(PrepareEmbedding, absl::StrCat("{\"input\":[", many, "]}")), "input", "many");
  // Prompts and candidates multiply.
  ExpectRefused(
      Run(PrepareCompletion, R"({"n":128,"prompt":["1","2","3","4","5","6","7","8","9"]})"),
      "prompt", "fan-out");
}

TEST_F(RequestTest, CompletionsOwnRules) {
  ExpectRefused(Complete(R"("suffix":"x")"), "suffix", "suffix");
  ExpectRefused(Complete(R"("best_of":2,"n":3)"), "best_of", "below n");
  ExpectRefused(Complete(R"("best_of":2,"stream":true)"), "best_of", "stream");
  ExpectRefused(Complete(R"("max_tokens":0)"), "max_tokens", "0");
  EXPECT_EQ(Complete(R"("max_tokens":0,"echo":true)")->parts[0].max_tokens, 0);
  EXPECT_EQ(Complete(R"("best_of":4,"n":2)")->parts[0].best_of, 4);
  const auto echoed = Complete(R"("echo":true,"logprobs":3)");
  EXPECT_EQ(echoed->parts[0].prompt_logprobs, 3);
  EXPECT_EQ(echoed->parts[0].sampling.logprobs, 3);
}

TEST_F(RequestTest, MinTokensFitTheirLimitOrTheRoom) {
  // The fake's context is 256; "hi" as a prompt leaves 254, a chat less.
  ExpectRefused(Chat(R"("min_tokens":5,"max_completion_tokens":4)"), "min_tokens", "4");
  ExpectRefused(Chat(R"("min_tokens":256)"), "min_tokens", "the rest of the context");
  ExpectRefused(Complete(R"("min_tokens":17)"), "min_tokens", "the default of 16");
  ExpectRefused(Complete(R"("min_tokens":1,"max_tokens":0,"echo":true)"), "min_tokens", "none");
  EXPECT_TRUE(Complete(R"("min_tokens":254,"max_tokens":254)").ok());
  EXPECT_TRUE(Chat(R"("min_tokens":200)").ok());
}

// A prompt that leaves one token of room, and one that leaves none and wants none.
TEST_F(RequestTest, APromptMayLeaveLessRoomThanTheDefaultLength) {
  const auto prompt = [this](size_t length, std::string_view more) {
    return Run(PrepareCompletion,
               absl::StrCat("{\"prompt\":\"", std::string(length, 'z'), "\"", Sv(more), "}"));
  };
  EXPECT_EQ(prompt(255, "")->parts[0].max_tokens, 1);
  EXPECT_EQ(prompt(240, "")->parts[0].max_tokens, 16);
  EXPECT_EQ(prompt(245, "")->parts[0].max_tokens, 11);
  ExpectRefused(prompt(256, ""), "prompt", "no room");
  EXPECT_EQ(prompt(256, R"(,"echo":true,"max_tokens":0)")->parts[0].max_tokens, 0);
  ExpectRefused(prompt(256, R"(,"echo":true,"max_tokens":1)"), "prompt", "no room");
  ExpectRefused(prompt(257, R"(,"echo":true,"max_tokens":0)"), "prompt", "beyond the context");
  // Each prompt of a list has its own room.
  const auto call =
      Run(PrepareCompletion, absl::StrCat(R"({"prompt":["hi",")", std::string(250, 'z'), R"("]})"));
  EXPECT_EQ(call->parts[0].max_tokens, 16);
  EXPECT_EQ(call->parts[1].max_tokens, 6);
}

TEST_F(RequestTest, LengthsAgainstTheContext) {
  // The fake's context is 256; a letter is a token.
  const auto status = [this](int prompt, int max_tokens) {
    return Run(PrepareCompletion,
               absl::StrCat("{\"prompt\":\"", std::string(static_cast<size_t>(prompt), 'z'),
                            "\",\"max_tokens\":", max_tokens, "}"))
        .status();
  };
  EXPECT_TRUE(status(255, 1).ok());
  EXPECT_TRUE(status(1, 255).ok());
  for (const auto& [prompt, tokens, param] :
       {std::tuple(256, 1, "prompt"), std::tuple(300, 1, "prompt"),
        std::tuple(2, 255, "max_tokens"), std::tuple(2, 2147483647, "max_tokens")}) {
    const ApiError error = ErrorOf(status(prompt, tokens));
    EXPECT_EQ(error.code, kContextLengthExceeded);
    EXPECT_EQ(error.param, param);
  }
  const ApiError error = ErrorOf(Chat(R"("max_completion_tokens":256)").status());
  EXPECT_EQ(error.code, kContextLengthExceeded);
  EXPECT_EQ(error.param, "max_completion_tokens");
}

TEST_F(RequestTest, Embeddings) {
  EXPECT_EQ(Run(PrepareEmbedding, R"({"input":["a","b"]})")->parts.size(), 2u);
  EXPECT_EQ(Run(PrepareEmbedding, R"({"input":"a","dimensions":4})")->parts[0].task, Task::kEmbed);
  ExpectRefused(Run(PrepareEmbedding, R"({"input":"a","dimensions":3})"), "dimensions", "3");
  ExpectRefused(Run(PrepareEmbedding, R"({"input":"a","encoding_format":"hex"})"),
                "encoding_format", "hex");
  ExpectRefused(Run(PrepareEmbedding, R"({"input":""})"), "input", "empty");
  ExpectRefused(Run(PrepareEmbedding, "{}"), "input", "missing");
}

TEST_F(RequestTest, BodiesThatAreNoJsonObject) {
  std::string deep = "1", deeper = "1";
  for (int i = 0; i < 63; ++i) deep = absl::StrCat("[", deep, "]");
  for (int i = 0; i < 64; ++i) deeper = absl::StrCat("[", deeper, "]");
  const std::string abyss(1000000, '[');
  EXPECT_TRUE(Chat("\"x\":" + deep).ok()) << Chat("\"x\":" + deep).status();
  ExpectRefused(Chat("\"x\":" + deeper), "", "depth 65");
  for (const std::string& body :
       std::initializer_list<std::string>{"",
                                          " ",
                                          "[]",
                                          "1",
                                          "null",
                                          "\"x\"",
                                          "{",
                                          "{}}",
                                          "{\"a\":1,}",
                                          abyss,
                                          "\xEF\xBB\xBF{}",
                                          std::string("{\0}", 3),
                                          "{'a':1}",
                                          "{\"a\":1,\"a\":2}",
                                          R"({"x":{"b":1,"c":[{"d":1,"d":2}]}})",
                                          "{\"a\":\"\xFF\"}",
                                          "{\"a\":\"\xC3\"}",
                                          R"({"a":"\ud800"})",
                                          R"({"a":"\udc00\ud800"})",
                                          R"({"a":"\x"})",
                                          "{\"a\":\"\n\"}",
                                          std::string("\xFF\xFE{\0}\0", 6)}) {
    for (const PrepareCall prepare : {PrepareChat, PrepareCompletion, PrepareEmbedding}) {
      ExpectRefused(Run(prepare, body), "", body.substr(0, 40));
    }
  }
}

TEST_F(RequestTest, ModelsByName) {
  absl::StatusOr<Call> call = Chat(R"("model":"other")");
  EXPECT_EQ(ErrorOf(call.status()).status, 404);
  EXPECT_EQ(ErrorOf(call.status()).code, "model_not_found");
  EXPECT_EQ(ErrorOf(call.status()).param, "model");
  call = Chat(R"("model":"sleeping")");
  EXPECT_EQ(ErrorOf(call.status()).status, 503);
  EXPECT_GT(ErrorOf(call.status()).retry_after_s, 0);
}

}  // namespace
}  // namespace cuvil::server::openai
