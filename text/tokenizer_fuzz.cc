// Any bytes as text: what is not UTF-8 is refused, everything else comes back from its tokens.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/detokenizer.h"
#include "text/tiny_vocab.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using cuvil::text::Detokenizer;
using cuvil::text::Segment;
using cuvil::text::Tokenizer;

std::vector<std::shared_ptr<const Tokenizer>> Tokenizers() {
  std::vector<std::shared_ptr<const Tokenizer>> made;
  for (const char* pre : {"smollm", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-v3",
                          "deepseek-coder", "falcon", "viking", "default"}) {
    auto one = Tokenizer::Create(cuvil::text::TinyBpe(
        {"a a", "aa aa", "t h", "th e", "\xC4\xA0 t", "\xC4\xA0t he", "1 2", "\xC4\xA0 \xC4\xA0"},
        pre));
    CUVIL_CHECK(one.ok(), one.status().ToString());
    made.push_back(*one);
  }
  return made;
}

void RoundTrip(const Tokenizer& tokenizer, std::string_view text, bool special) {
  const auto ids = tokenizer.Encode(text, {.parse_special = special});
  CUVIL_CHECK(ids.ok(), ids.status().ToString());
  CUVIL_CHECK(tokenizer.Decode(*ids, true) == text, "text comes back");
  for (const int32_t id : *ids) {
    CUVIL_CHECK(special || !tokenizer.IsControl(id), "text does not turn into control tokens");
  }
}

void Streams(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  const auto ids = tokenizer->Encode(text, {});
  Detokenizer detokenizer(tokenizer, {"the", "aaa"});
  std::string out;
  bool stopped = false;
  for (const int32_t id : *ids) {
    const auto piece = detokenizer.Push(id);
    CUVIL_CHECK(cuvil::text::FirstInvalidUtf8(piece.text) == piece.text.size(), "whole characters");
    out += piece.text;
    stopped = piece.stopped;
  }
  if (!stopped) out += detokenizer.Flush().text;
  CUVIL_CHECK(text.starts_with(out), "the stream is the text");
  CUVIL_CHECK(out.find("the") == std::string::npos && out.find("aaa") == std::string::npos,
              "no stop string leaks");
  CUVIL_CHECK(stopped || out == text, "nothing is lost");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* tokenizers = new std::vector<std::shared_ptr<const Tokenizer>>(Tokenizers());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool valid = cuvil::text::FirstInvalidUtf8(text) == size;
  const auto& any = (*tokenizers)[size % tokenizers->size()];
  if (!valid) {
    CUVIL_CHECK(!any->Encode(text, {}).ok(), "broken UTF-8 is refused");
    return 0;
  }
  for (const auto& tokenizer : *tokenizers) RoundTrip(*tokenizer, text, false);
  RoundTrip(*any, text, true);
  Streams(any, text);
  // Cut anywhere, as segments: as one text.
  const size_t cut = size / 3;
  const std::vector<Segment> segments = {{std::string(text.substr(0, cut)), false},
                                         {std::string(text.substr(cut)), false}};
  CUVIL_CHECK(*any->EncodeSegments(segments, {}) == *any->Encode(text, {}), "cuts change nothing");
  return 0;
}
