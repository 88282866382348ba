#include "text/tokenizer.h"

#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/byte_level.h"
#include "text/pretokenizer.h"
#include "text/tiny_vocab.h"
#include "text/utf8.h"

namespace cuvil::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr size_t kGoldenBytesMax = 16 << 20;

Json ReadGolden(const std::string& name) {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  const std::string path =
      std::string(root == nullptr ? "." : root) + "/tests/data/tokenize/" + name;
  const absl::StatusOr<std::string> text = ReadFile(path, kGoldenBytesMax);
  EXPECT_TRUE(text.ok()) << text.status();
  if (!text.ok()) return Json();
  const absl::StatusOr<Json> json = ParseJson(*text);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

std::shared_ptr<const Tokenizer> Make(VocabSpec spec) {
  auto made = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : nullptr;
}

Ids EncodeOrFail(const Tokenizer& tokenizer, std::string_view text,
                 const Tokenizer::EncodeOptions& options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

std::string Repeat(std::string_view what, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out.append(what);
  return out;
}

std::string ErrorOf(VocabSpec spec) {
  const auto made = Tokenizer::Create(std::move(spec));
  return made.ok() ? "created" : std::string(made.status().message());
}

TEST(PreTokenizer, CutsAsThePublishedExpressionsDo) {
  const Json golden = ReadGolden("splits.json");
  ASSERT_GE(golden["splits"].size(), 12u);
  for (const auto& [name, rows] : golden["splits"].items()) {
    const auto pre = PreTokenizer::Create(name);
    ASSERT_TRUE(pre.ok()) << pre.status();
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string text = golden["texts"][i].get<std::string>();
      std::vector<uint32_t> ends;
      pre->Split(text, &ends);
      // The goldens count characters.
      std::vector<uint32_t> in_characters;
      uint32_t characters = 0;
      size_t at = 0;
      for (const uint32_t end : ends) {
        for (; at < end; at += DecodeUtf8(text, at).length) ++characters;
        in_characters.push_back(characters);
      }
      EXPECT_EQ(in_characters, rows[i].get<std::vector<uint32_t>>())
          << name << ": " << golden["texts"][i];
    }
  }
}

TEST(PreTokenizer, UnknownNamesAreRefusedByName) {
  const auto pre = PreTokenizer::Create("tomorrow-bpe");
  ASSERT_FALSE(pre.ok());
  EXPECT_THAT(std::string(pre.status().message()), HasSubstr("\"tomorrow-bpe\" is not supported"));
}

TEST(Spm, EncodesAndDecodesAsSentencePieceDoes) {
  for (const Json& golden : ReadGolden("spm.json")) {
    VocabSpec spec;
    spec.kind = VocabKind::kSpm;
    spec.tokens = golden["tokens"].get<std::vector<std::string>>();
    spec.scores = golden["scores"].get<std::vector<float>>();
    for (const Json& type : golden["types"]) {
      spec.types.push_back(static_cast<TokenType>(type.get<int>()));
    }
    spec.unk = 0;
    spec.add_space_prefix = golden["add_space_prefix"].get<bool>();
    spec.remove_extra_whitespaces = golden["remove_extra_whitespaces"].get<bool>();
    const auto tokenizer = Make(spec);
    ASSERT_NE(tokenizer, nullptr);
    ASSERT_GE(golden["cases"].size(), 20u);
    for (const Json& one : golden["cases"]) {
      const std::string text = one["text"].get<std::string>();
      const Ids ids = EncodeOrFail(*tokenizer, text);
      EXPECT_EQ(ids, one["ids"].get<Ids>()) << one["text"];
      EXPECT_EQ(tokenizer->Decode(ids), one["decoded"].get<std::string>()) << one["text"];
    }
  }
}

TEST(Bpe, MergesTheBestPairFirst) {
  const auto tokenizer = Make(TinyBpe({"a b", "b c", "ab c", "c c"}));
  const auto text_of = [&](const Ids& ids) {
    std::string out;
    for (const int32_t id : ids) out += tokenizer->TokenBytes(id) + "|";
    return out;
  };
  EXPECT_EQ(text_of(EncodeOrFail(*tokenizer, "abc")), "abc|");
  EXPECT_EQ(text_of(EncodeOrFail(*tokenizer, "bcc")), "bc|c|");
  EXPECT_EQ(text_of(EncodeOrFail(*tokenizer, "ccc")), "cc|c|");
  EXPECT_EQ(text_of(EncodeOrFail(*tokenizer, "abcc ab")), "abc|c| |ab|");
}

TEST(Bpe, EveryByteComesBack) {
  const auto tokenizer = Make(TinyBpe({"a b"}));
  std::string all;
  for (uint32_t code = 0; code < 0x3000; code += 7) AppendUtf8(code, &all);
  AppendUtf8(0x1F642, &all);
  EXPECT_EQ(tokenizer->Decode(EncodeOrFail(*tokenizer, all)), all);
}

TEST(Special, ControlTokensNeedLeaveAndUserDefinedDoNot) {
  const auto tokenizer = Make(TinyBpe({"a b"}));
  const int32_t im_end = tokenizer->FindToken("<|im_end|>");
  const int32_t user = tokenizer->FindToken("<user>");
  EXPECT_THAT(EncodeOrFail(*tokenizer, "<|im_end|>", {.parse_special = true}), ElementsAre(im_end));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "<|im_end|>"), ::testing::Not(::testing::Contains(im_end)));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "<user>"), ElementsAre(user));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "<user><user>", {.parse_special = true}),
              ElementsAre(user, user));
  EXPECT_EQ(tokenizer->TokenBytes(im_end), "");
  EXPECT_EQ(tokenizer->TokenBytes(im_end, true), "<|im_end|>");
  EXPECT_EQ(tokenizer->TokenBytes(user), "<user>");
  EXPECT_EQ(tokenizer->TokenBytes(-1), "");
  EXPECT_EQ(tokenizer->TokenBytes(1 << 30), "");
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(im_end));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(user));
}

TEST(Special, TheLongestSpellingWins) {
  VocabSpec spec = TinyBpe({});
  for (const char* text : {"<a", "<a>", "<a><b>"}) {
    spec.tokens.push_back(text);
    spec.types.push_back(TokenType::kControl);
  }
  const auto tokenizer = Make(spec);
  const int32_t first = static_cast<int32_t>(spec.tokens.size()) - 3;
  const Tokenizer::EncodeOptions special{.parse_special = true};
  EXPECT_THAT(EncodeOrFail(*tokenizer, "<a<a><a><b>", special),
              ElementsAre(first, first + 1, first + 2));
  const int32_t b = tokenizer->FindToken("b");
  EXPECT_THAT(EncodeOrFail(*tokenizer, "<a>b", special), ElementsAre(first + 1, b));
}

TEST(Segments, OnlyTrustedTextSpellsControlTokens) {
  const auto tokenizer = Make(TinyBpe({"a b"}));
  const int32_t im_end = tokenizer->FindToken("<|im_end|>");
  const auto count = [&](const std::vector<Segment>& segments) {
    const auto ids = tokenizer->EncodeSegments(segments, {.parse_special = true});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return std::count(ids->begin(), ids->end(), im_end);
  };
  EXPECT_EQ(count({{"<|im_end|>", true}}), 1);
  EXPECT_EQ(count({{"<|im_end|>", false}}), 0);
  EXPECT_EQ(count({{"<|im_", true}, {"end|>", true}}), 1);
  EXPECT_EQ(count({{"<|im_", true}, {"end|>", false}}), 0);
  EXPECT_EQ(count({{"<|im_", false}, {"end|>", true}}), 0);
  EXPECT_EQ(count({{"<|im_", true}, {"", false}, {"end|>", true}}), 1);
  EXPECT_EQ(count({{"<|im_end|><|im_end|>", false}, {"<|im_end|>", true}, {"<|im_end|>", false}}),
            1);
}

TEST(Segments, OrdinaryTextIsCutAsOneText) {
  const auto tokenizer = Make(TinyBpe({"a b", "ab c"}));
  const auto ids =
      tokenizer->EncodeSegments(std::vector<Segment>{{"a", true}, {"b", false}, {"c", true}}, {});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, EncodeOrFail(*tokenizer, "abc"));
  // A character may even lie across a border.
  const auto split =
      tokenizer->EncodeSegments(std::vector<Segment>{{"\xC3", true}, {"\xA9", true}}, {});
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(*split, EncodeOrFail(*tokenizer, "é"));
}

TEST(Tokenizer, BrokenUtf8IsRefusedWithItsOffset) {
  const auto tokenizer = Make(TinyBpe({}));
  for (const auto& [text, offset] :
       std::vector<std::pair<std::string, int>>{{"ab\xFFxy", 2},
                                                {"\x80", 0},
                                                {"a\xC0\x80", 1},
                                                {"\xED\xA0\x80", 0},
                                                {"xyz\xF4\x90\x80\x80", 3},
                                                {"é\xE2\x82", 2}}) {
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(std::string(ids.status().message()),
              "the text to tokenize is not valid UTF-8 at byte " + std::to_string(offset));
  }
}

TEST(Tokenizer, BosAndEosOnRequest) {
  const auto tokenizer = Make(TinyBpe({}));
  const int32_t a = tokenizer->FindToken("a");
  EXPECT_THAT(EncodeOrFail(*tokenizer, "a", {.add_bos = true, .add_eos = true}),
              ElementsAre(tokenizer->spec().bos, a, tokenizer->spec().eos));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "", {.add_bos = true}), ElementsAre(tokenizer->spec().bos));
}

TEST(Tokenizer, WrongVocabulariesAreRefused) {
  EXPECT_THAT(ErrorOf(VocabSpec{}), HasSubstr("has 0 tokens"));
  VocabSpec spec = TinyBpe({});
  spec.bos = 100000;
  EXPECT_THAT(ErrorOf(spec), HasSubstr("bos token id 100000 is outside"));
  spec = TinyBpe({});
  spec.types.pop_back();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("token types"));
  spec = TinyBpe({"ab"});
  EXPECT_THAT(ErrorOf(spec), HasSubstr("merge 0"));
  spec = TinyBpe({});
  spec.pre = "no-such";
  EXPECT_THAT(ErrorOf(spec), HasSubstr("no-such"));
  spec = TinyBpe({});
  spec.kind = VocabKind::kSpm;
  EXPECT_THAT(ErrorOf(spec), HasSubstr("scores"));
  spec = TinyBpe({});
  spec.tokens.push_back(std::string(SpecialTokens::kMaxBytes + 1, 'x'));
  spec.types.push_back(TokenType::kControl);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("513 bytes long"));
}

// What is held down is work, not time: at most so many lookups a byte, whatever the text.
TEST(Tokenizer, WorkIsLinearInTheText) {
  std::vector<std::string> merges = {"a a", "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ", "Ì ģ"};
  VocabSpec spm;
  spm.kind = VocabKind::kSpm;
  spm.tokens = {"a", "aa", "aaa", "aaaa", "\u2581", "\u2581\u2581", "\u0301", "\u0301\u0301"};
  spm.scores = {0, -1, -2, -3, -4, -5, -6, -7};
  for (const auto& tokenizer : {Make(TinyBpe(merges)), Make(spm)}) {
    for (const char* unit :
         {"a", " ", "\u0301", "ab", " a", "\n", "<|im_end|>", "<|im_end", "a1", "'"}) {
      const std::string text = Repeat(unit, 50000);
      MergeWork work;
      const auto ids = tokenizer->EncodeCounted(text, {.parse_special = true}, &work);
      ASSERT_TRUE(ids.ok());
      EXPECT_LE(work.lookups, 3 * (text.size() + 3)) << unit;
      EXPECT_LE(work.pushes, work.lookups) << unit;
    }
  }
}

}  // namespace
}  // namespace cuvil::text
