// Answers as clients see them, byte for byte where that matters.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/json.h"
#include "gtest/gtest.h"
#include "server/api/retry.h"
#include "server/openai/embedding_answer.h"
#include "server/openai/error.h"
#include "server/openai/fake_backend.h"
#include "server/openai/openapi.h"
#include "server/openai/prepare.h"
#include "server/openai/text_answer.h"

namespace cuvil::server::openai {
namespace {

class AnswerTest : public testing::Test {
 protected:
  Call Prepare(absl::StatusOr<Call> (*prepare)(std::string_view, const CallContext&),
               std::string_view body) {
    CallContext context;
    context.backend = &backend_;
    context.id = "1";
    context.created = 1700000000;
    auto call = prepare(body, context);
    CUVIL_CHECK(call.ok(), call.status().ToString());
    return *std::move(call);
  }
  // Runs the scripted events through the answer; returns the stream.
  static std::string Play(Call* call, const FakeBackend::Script& script = FakeBackend::Letters) {
    std::string sse;
    for (size_t part = 0; part < call->parts.size(); ++part) {
      for (Events& events : script(call->parts[part])) {
        call->answer->Take(static_cast<int>(part), std::move(events), &sse);
      }
    }
    return sse;
  }
  static TokenEvent Token(std::string_view text, int choice = 0) {
    return {.choice = choice, .token = {.id = ByteToken(text[0])}, .text = std::string(text)};
  }

  FakeBackend backend_;
};

constexpr char kChatHead[] = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2)";

TEST_F(AnswerTest, ChatWhole) {
  Call call = Prepare(PrepareChat, absl::StrCat(kChatHead, R"(,"timings":true})"));
  EXPECT_EQ(Play(&call), "");
  EXPECT_TRUE(call.answer->complete());
  EXPECT_EQ(call.answer->finish_reason(), "length");
  EXPECT_EQ(
      call.answer->Body(),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"org/tiny",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"ab","refusal":null},)"
      R"("logprobs":null,"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":18,"completion_tokens":2,"total_tokens":20,)"
      R"("prompt_tokens_details":{"cached_tokens":1},)"
      R"("completion_tokens_details":{"reasoning_tokens":0},"trimmed_tokens":0},)"
      R"("timings":{"queue_s":0.001,"first_token_s":0.002,"prefill_s":0.001,"total_s":0.01,)"
      R"("preemptions":0}})");
}

TEST_F(AnswerTest, ChatStreamOfTwoChoices) {
  Call call =
      Prepare(PrepareChat, absl::StrCat(kChatHead, R"(,"n":2,"stream":true,"stream_options":)"
                                                   R"({"include_usage":true}})"));
  const std::string head =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,)"
      R"("model":"org/tiny","choices":[)";
  const auto chunk = [&head](int index, std::string_view delta, std::string_view finish) {
    return absl::StrCat(head, "{\"index\":", index, ",\"delta\":{", Sv(delta),
                        "},\"logprobs\":null,\"finish_reason\":", Sv(finish),
                        "}],\"usage\":null}\n\n");
  };
  std::string expected;
  for (int i = 0; i < 2; ++i) expected += chunk(i, R"("role":"assistant","content":"")", "null");
  expected += chunk(0, R"("content":"a")", "null") + chunk(1, R"("content":"b")", "null");
  expected += chunk(0, R"("content":"b")", "null") + chunk(0, "", "\"length\"");
  expected += chunk(1, R"("content":"c")", "null") + chunk(1, "", "\"length\"");
  expected += head + R"(],"usage":{"prompt_tokens":18,"completion_tokens":4,"total_tokens":22,)"
                     R"("prompt_tokens_details":{"cached_tokens":1},)"
                     R"("completion_tokens_details":{"reasoning_tokens":0},"trimmed_tokens":0}})"
                     "\n\ndata: [DONE]\n\n";
  EXPECT_EQ(Play(&call), expected);
}

TEST_F(AnswerTest, ChatLogprobs) {
  const auto script = [](const GenerateRequest& request) {
    std::vector<Events> steps(1);
    TokenEvent event;
    event.token = {.id = ByteToken('\xC3'),
                   .logprob = -std::numeric_limits<double>::infinity(),
                   .top = {{ByteToken('q'), -0.25}}};
    steps[0].tokens.push_back(event);
    steps[0].ended.push_back({.text = "\xC3\xA9"});
    FakeBackend::Finish(request, 1, &steps[0]);
    return steps;
  };
  const std::string logprobs =
      R"({"content":[{"token":"�","logprob":-9999.0,"bytes":[195],"top_logprobs":)"
      R"([{"token":"q","logprob":-0.25,"bytes":[113]}]}],"refusal":null})";
  Call call =
      Prepare(PrepareChat, absl::StrCat(kChatHead, R"(,"logprobs":true,"top_logprobs":1})"));
  Play(&call, script);
  const Json whole = *ParseJson(call.answer->Body());
  EXPECT_EQ(whole["choices"][0]["logprobs"], *ParseJson(logprobs));
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "\xC3\xA9");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  call = Prepare(PrepareChat, absl::StrCat(kChatHead, R"(,"logprobs":true,"stream":true})"));
  EXPECT_NE(Play(&call, script).find(R"("delta":{"content":"é"},"logprobs":)" + logprobs),
            std::string::npos);
}

TEST_F(AnswerTest, CompletionEchoWithLogprobs) {
  const std::string body = R"({"prompt":"hé","max_tokens":2,"echo":true,"logprobs":1)";
  const Json expected =
      *ParseJson(R"({"tokens":["h","�","�","a","b"],"token_logprobs":[null,-2.0,-2.0,-0.5,-0.5],)"
                 R"("top_logprobs":[null,{},{},{"a":-1.0},{"a":-1.0}],"text_offset":[0,1,1,2,3]})");
  Call call = Prepare(PrepareCompletion, body + "}");
  Play(&call);
  const Json whole = *ParseJson(call.answer->Body());
  EXPECT_EQ(whole["object"], "text_completion");
  EXPECT_EQ(whole["choices"][0]["text"], "héab");
  EXPECT_EQ(whole["choices"][0]["logprobs"], expected);
  // In a stream the prompt comes first, with its own part of the arrays; offsets go on.
  call = Prepare(PrepareCompletion, body + R"(,"stream":true})");
  const std::string sse = Play(&call);
  EXPECT_NE(sse.find(R"("text":"hé","logprobs":{"tokens":["h","�","�"])"), std::string::npos);
  EXPECT_NE(sse.find(R"("text_offset":[3])"), std::string::npos) << sse;
}

TEST_F(AnswerTest, EchoWithoutNewTokens) {
  Call call = Prepare(PrepareCompletion, R"({"prompt":"hi","max_tokens":0,"echo":true})");
  Play(&call);
  const Json whole = *ParseJson(call.answer->Body());
  EXPECT_EQ(whole["choices"][0]["text"], "hi");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 0);
  call = Prepare(PrepareCompletion,
                 R"({"prompt":"hi","max_tokens":0,"echo":true,"logprobs":0,"stream":true})");
  const std::string sse = Play(&call);
  EXPECT_NE(sse.find(R"("text":"hi","logprobs":{"tokens":["h","i"])"), std::string::npos) << sse;
  EXPECT_NE(sse.find(R"("finish_reason":"length")"), std::string::npos) << sse;
}

TEST_F(AnswerTest, TextOffsetsIndexTheAnswersOwnText) {
  constexpr int32_t kControl = 1;  // "<|im_end|>"; the answer's text leaves it out
  const auto script = [](const GenerateRequest& request) {
    std::vector<Events> steps(1);
    TokenEvent control{.token = {.id = kControl}};
    steps[0].tokens = {Token("a"), control, Token("b"), control};
    for (const int32_t id : request.prompt) steps[0].prompt_logprobs.push_back({.id = id});
    steps[0].ended.push_back({});
    FakeBackend::Finish(request, 4, &steps[0]);
    return steps;
  };
  const auto offsets = [&](Call call) {
    Play(&call, script);
    const Json choice = (*ParseJson(call.answer->Body()))["choices"][0];
    EXPECT_TRUE(choice["text"].get<std::string>().ends_with("ab")) << choice["text"];
    return choice["logprobs"]["text_offset"];
  };
  const auto complete = [this](std::string_view fields) {
    return Prepare(PrepareCompletion, absl::StrCat("{\"logprobs\":0,", Sv(fields), "}"));
  };
  EXPECT_EQ(offsets(complete(R"("prompt":"hi")")), Json::array({0, 1, 1, 2}));
  // Tokens as a prompt are echoed with their control tokens spelled: "<s>hi", "hi<|im_end|>".
  EXPECT_EQ(offsets(complete(R"("prompt":[0,107,108],"echo":true)")),
            Json::array({0, 3, 4, 5, 6, 6, 7}));
  EXPECT_EQ(offsets(complete(R"("prompt":"h<|im_end|>","parse_special":true,"echo":true)")),
            Json::array({0, 1, 11, 12, 12, 13}));
  // A stream counts the same way.
  Call stream = complete(R"("prompt":"hi","stream":true)");
  EXPECT_NE(Play(&stream, script).find(R"("text_offset":[0,1,1,2])"), std::string::npos);
}

TEST_F(AnswerTest, TextOffsetsLeaveOutTheTokenPutInFront) {
  text::VocabSpec spec = text::TinyBpe({});
  spec.add_bos = true;
  const auto tokenizer = *text::Tokenizer::Create(spec);
  std::vector<engine::SampledToken> tokens;
  const auto ids = tokenizer->Encode("hi", {.add_bos = true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  for (const int32_t id : *ids) tokens.push_back({.id = id});
  ASSERT_EQ(tokens.size(), 3u);
  tokens.push_back({.id = ByteToken('a')});
  std::string json;
  TextPosition position;
  AppendCompletionLogprobs(*tokenizer, tokens, {.tokens = 3, .first_is_added = true}, &position,
                           &json);
  EXPECT_EQ((*ParseJson(json))["text_offset"], Json::array({0, 0, 1, 2}));
}

// Encoding puts a space in front that is no part of the text.
TEST_F(AnswerTest, TextOffsetsLeaveOutTheSpacePutInFront) {
  text::VocabSpec spec;
  spec.kind = text::VocabKind::kSpm;
  spec.add_space_prefix = true;
  spec.bos = 0;
  spec.tokens = {"<s>", "\xE2\x96\x81h", "i", "\xE2\x96\x81j"};
  spec.types = {text::TokenType::kControl, text::TokenType::kNormal, text::TokenType::kNormal,
                text::TokenType::kNormal};
  spec.scores = {0, 0, 0, 0};
  const auto tokenizer = text::Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ASSERT_EQ((*tokenizer)->Decode({0, 1, 2, 3}, true), "<s>hi j");
  const std::vector<engine::SampledToken> tokens = {{.id = 0}, {.id = 1}, {.id = 2}, {.id = 3}};
  std::string json;
  TextPosition position;
  AppendCompletionLogprobs(**tokenizer, tokens, {.tokens = 4}, &position, &json);
  EXPECT_EQ((*ParseJson(json))["text_offset"], Json::array({0, 3, 4, 5}));
}

TEST_F(AnswerTest, BestOfReturnsTheBestInOrder) {
  Call call = Prepare(PrepareCompletion, R"({"prompt":"hi","max_tokens":2,"n":2,"best_of":4})");
  Play(&call);  // the fake finds the last candidate the best
  const Json whole = *ParseJson(call.answer->Body());
  ASSERT_EQ(whole["choices"].size(), 2u);
  EXPECT_EQ(whole["choices"][0]["text"], "de");
  EXPECT_EQ(whole["choices"][1]["text"], "cd");
  EXPECT_EQ(whole["choices"][1]["index"], 1);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 8);
}

TEST_F(AnswerTest, StreamedTextIsTheWholeText) {
  const auto script = [](const GenerateRequest& request) {
    std::vector<Events> steps(3);
    steps[0].tokens = {Token("line\n\"q\""), Token("\\ \t\x01"), Token("中文🙂")};
    TokenEvent held = Token("x");
    held.text.clear();
    steps[1].tokens = {held};
    steps[2].ended.push_back({.text = "held \xFF back", .stop_matched = "s"});
    FakeBackend::Finish(request, 5, &steps[2]);
    return steps;
  };
  Call whole = Prepare(PrepareChat, absl::StrCat(kChatHead, "}"));
  Play(&whole, script);
  const std::string expected =
      (*ParseJson(whole.answer->Body()))["choices"][0]["message"]["content"];
  EXPECT_EQ(expected, "line\n\"q\"\\ \t\x01中文🙂held \xEF\xBF\xBD back");
  Call stream = Prepare(PrepareChat, absl::StrCat(kChatHead, R"(,"stream":true})"));
  std::string text;
  int finishes = 0;
  const std::string sse = Play(&stream, script);
  for (size_t at = 0; at < sse.size();) {
    const size_t end = sse.find("\n\n", at);
    const std::string event = sse.substr(at + 6, end - at - 6);
    EXPECT_EQ(event.find('\n'), std::string::npos);
    at = end + 2;
    if (event == "[DONE]") continue;
    const Json choice = (*ParseJson(event))["choices"][0];
    text += choice["delta"].value("content", "");
    finishes += choice["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(text, expected);
  EXPECT_EQ(finishes, 1);
}

TEST_F(AnswerTest, FailuresEndTheStreamWithAnError) {
  for (const auto& [reason, code] : {std::pair(FinishReason::kDeadline, "deadline_exceeded"),
                                     std::pair(FinishReason::kError, "internal_error"),
                                     std::pair(FinishReason::kAborted, "cancelled")}) {
    Call call = Prepare(PrepareChat, absl::StrCat(kChatHead, R"(,"stream":true})"));
    std::string sse;
    Events events;
    events.tokens = {Token("a")};
    events.ended.push_back({.reason = reason});
    call.answer->Take(0, std::move(events), &sse);
    EXPECT_TRUE(call.answer->complete());
    EXPECT_EQ(call.answer->finish_reason(), FinishName(reason));
    EXPECT_NE(sse.find(absl::StrCat("\"code\":\"", code, "\"}}\n\ndata: [DONE]\n\n")),
              std::string::npos)
        << sse;
    EXPECT_EQ(sse.find("\"finish_reason\":\""), std::string::npos);
    std::string nothing;
    call.answer->Fail(absl::InternalError("twice"), &nothing);
    EXPECT_EQ(nothing, "");
  }
}

TEST_F(AnswerTest, EmbeddingsAreUnitVectorsInBothFormats) {
  Call call = Prepare(PrepareEmbedding, R"({"input":["a","b"]})");
  Play(&call);
  EXPECT_EQ(call.answer->Body(),
            R"({"object":"list","data":[)"
            R"({"object":"embedding","index":0,"embedding":[0.6,0.0,-0.8,0.0]},)"
            R"({"object":"embedding","index":1,"embedding":[0.6,0.0,-0.8,0.0]}],)"
            R"("model":"org/tiny","usage":{"prompt_tokens":2,"total_tokens":2}})");
  call = Prepare(PrepareEmbedding, R"({"input":"a","encoding_format":"base64"})");
  Play(&call);
  std::string bytes;
  const Json json = *ParseJson(call.answer->Body());
  ASSERT_TRUE(absl::Base64Unescape(json["data"][0]["embedding"].get<std::string>(), &bytes));
  ASSERT_EQ(bytes.size(), 16u);
  float third = 0;
  std::memcpy(&third, bytes.data() + 8, 4);
  EXPECT_FLOAT_EQ(third, -0.8F);
}

TEST(Errors, MapStatusesAndHideTheInside) {
  const auto of = [](absl::StatusCode code, const char* message) {
    return ErrorOf(absl::Status(code, message));
  };
  EXPECT_EQ(of(absl::StatusCode::kResourceExhausted, "full").status, 429);
  EXPECT_EQ(of(absl::StatusCode::kResourceExhausted, "full").retry_after_s, 1);
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(ErrorOf(WithRetryAfter(full, 2'000'001)).retry_after_s, 3);
  EXPECT_EQ(ErrorOf(WithRetryAfter(full, 0)).retry_after_s, 1);
  EXPECT_EQ(ErrorOf(WithRetryAfter(full, int64_t{1} << 60)).retry_after_s, 60);
  EXPECT_EQ(of(absl::StatusCode::kUnavailable, "loading").message, "loading");
  EXPECT_TRUE(of(absl::StatusCode::kInternal, "x").never_retry);
  EXPECT_TRUE(of(absl::StatusCode::kUnknown, "x").never_retry);
  EXPECT_EQ(of(absl::StatusCode::kUnknown, "secret").status, 500);
  EXPECT_EQ(of(absl::StatusCode::kUnknown, "secret").message.find("secret"), std::string::npos);
  EXPECT_TRUE(of(absl::StatusCode::kDeadlineExceeded, "").never_retry);
  EXPECT_FALSE(of(absl::StatusCode::kDeadlineExceeded, "").message.empty());
  for (const char* inside : {"cannot open /srv/a", "at 0x7ffe", "cuvil::X failed", "/etc"}) {
    EXPECT_TRUE(ShowsInside(inside)) << inside;
    EXPECT_FALSE(ShowsInside(of(absl::StatusCode::kUnavailable, inside).message));
  }
  EXPECT_FALSE(ShowsInside("tokens and/or text, 10x more"));
  EXPECT_EQ(ErrorBody(ErrorOf(Invalid("n", "n is \"0\""))),
            R"({"error":{"message":"n is \"0\"","type":"invalid_request_error","param":"n",)"
            R"("code":null}})");
}

TEST(OpenApiDocument, HasEveryFieldOfTheTables) {
  const Json json = *ParseJson(OpenApi({{"/v1/chat/completions", true, "d", true}}, "1"));
  const Json& schemas = json["components"]["schemas"];
  const Json& chat = schemas["ChatCompletionRequest"];
  EXPECT_EQ(chat["properties"]["n"]["maximum"], 128);
  EXPECT_EQ(chat["properties"]["temperature"]["maximum"], 2.0);
  EXPECT_EQ(chat["properties"]["repetition_penalty"]["exclusiveMinimum"], 0.0);
  EXPECT_EQ(chat["required"], Json::array({"messages"}));
  EXPECT_EQ(json["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
                ["application/json"]["schema"]["$ref"],
            "#/components/schemas/ChatCompletionRequest");
  for (const char* name :
       {"CompletionRequest", "EmbeddingRequest", "TokenizeRequest", "DetokenizeRequest"}) {
    EXPECT_TRUE(schemas.contains(name));
  }
}

}  // namespace
}  // namespace cuvil::server::openai
