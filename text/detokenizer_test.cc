#include "text/detokenizer.h"

#include <string>

#include "gtest/gtest.h"
#include "text/tiny_vocab.h"
#include "text/utf8.h"

namespace cuvil::text {
namespace {

std::shared_ptr<const Tokenizer> Bytes() {
  auto made = Tokenizer::Create(TinyBpe({}));
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

// One token a byte: the hardest stream.
std::vector<int32_t> ByteTokens(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) {
    ids.push_back(tokenizer.FindToken(ByteLevelChar(static_cast<uint8_t>(c))));
  }
  return ids;
}

struct Streamed {
  std::string text;  // pieces with | between
  bool stopped = false;
};

Streamed Stream(std::string_view bytes, std::vector<std::string> stop) {
  const auto tokenizer = Bytes();
  Detokenizer detokenizer(tokenizer, std::move(stop));
  Streamed out;
  for (const int32_t id : ByteTokens(*tokenizer, bytes)) {
    const Detokenizer::Piece piece = detokenizer.Push(id);
    EXPECT_EQ(FirstInvalidUtf8(piece.text), piece.text.size());
    out.text += piece.text + "|";
    out.stopped = piece.stopped;
  }
  const Detokenizer::Piece rest = detokenizer.Flush();
  out.text += rest.text;
  out.stopped = out.stopped || rest.stopped;
  return out;
}

std::string Joined(std::string_view bytes, std::vector<std::string> stop = {}) {
  std::string text = Stream(bytes, std::move(stop)).text;
  std::erase(text, '|');
  return text;
}

TEST(Detokenizer, ReturnsWholeCharacters) {
  EXPECT_EQ(Stream("aé", {}).text, "a||é|");
  EXPECT_EQ(Stream("🙂x", {}).text, "|||🙂|x|");
  EXPECT_EQ(Joined("日本語 🙂👩‍👧"), "日本語 🙂👩‍👧");
}

// As Python decodes with errors="replace".
TEST(Detokenizer, BrokenBytesBecomeReplacements) {
  EXPECT_EQ(Joined("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(Joined("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(Joined("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(Joined("\xF0\x9F\x99"), "\uFFFD");
  EXPECT_EQ(Joined("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Joined("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(Joined("\xF0\x9F\xC3\xA9"), "\uFFFDé");
  EXPECT_EQ(Joined("\xE2\xE2\x82\xAC"), "\uFFFD€");
}

TEST(Detokenizer, StopsBeforeAStopString) {
  const Streamed out = Stream("hello STOP more", {"STOP"});
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(Joined("hello STOP more", {"STOP"}), "hello ");
  EXPECT_FALSE(Stream("hello STO", {"STOP"}).stopped);
  EXPECT_EQ(Joined("hello STO", {"STOP"}), "hello STO");
}

TEST(Detokenizer, HoldsBackWhatMayBecomeAStopString) {
  EXPECT_EQ(Stream("aSTx", {"STOP"}).text, "a|||STx|");
  // After "ab" the held text may still begin "abab": nothing of it leaks, nothing is lost.
  EXPECT_EQ(Joined("abaababab", {"abab"}), "aba");
  EXPECT_EQ(Joined("aaab", {"aab"}), "a");
}

TEST(Detokenizer, TheStopThatEndsFirstWins) {
  EXPECT_EQ(Joined("xabcdef", {"cde", "abcdef"}), "xab");
  EXPECT_EQ(Joined("xabc", {"c", "abc"}), "x");
  EXPECT_EQ(Joined("日本語", {"本"}), "日");
}

// Stop strings ended answers that were to be longer.
TEST(Detokenizer, WhereItMayNotStopAStopStringIsText) {
  const auto tokenizer = Bytes();
  const auto run = [&](std::string_view bytes, size_t from, std::vector<std::string> stop) {
    Detokenizer detokenizer(tokenizer, std::move(stop));
    std::string text;
    size_t at = 0;
    for (const int32_t id : ByteTokens(*tokenizer, bytes)) {
      const Detokenizer::Piece piece = detokenizer.Push(id, at++ >= from);
      text += piece.text;
      if (piece.stopped) return text + "!";
    }
    return text + detokenizer.Flush().text;
  };
  EXPECT_EQ(run("a stop b stop c", 7, {"stop"}), "a stop b !");
  EXPECT_EQ(run("a stop b", 7, {"stop"}), "a stop b");
  EXPECT_EQ(run("a stop b", 5, {"stop"}), "a !");  // it ends where it may
  EXPECT_EQ(run("aaaa", 3, {"aa"}), "aa!");
  EXPECT_EQ(run("aab", 2, {"aa", "ab"}), "a!");
}

TEST(Detokenizer, EmptyStopStringsAreIgnored) {
  EXPECT_EQ(Joined("abc", {""}), "abc");
  EXPECT_FALSE(Stream("abc", {""}).stopped);
}

TEST(Detokenizer, NothingFollowsAStop) {
  const auto tokenizer = Bytes();
  Detokenizer detokenizer(tokenizer, {"a"});
  const int32_t a = tokenizer->FindToken("a"), b = tokenizer->FindToken("b");
  EXPECT_EQ(detokenizer.Push(b).text, "b");
  EXPECT_TRUE(detokenizer.Push(a).stopped);
  EXPECT_EQ(detokenizer.Push(b).text, "");
  EXPECT_TRUE(detokenizer.Push(b).stopped);
  EXPECT_EQ(detokenizer.Flush().text, "");
}

}  // namespace
}  // namespace cuvil::text
