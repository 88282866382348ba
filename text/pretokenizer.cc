#include "text/pretokenizer.h"

#include <string>

#include "text/utf8.h"
#include "text/vocab.h"

namespace cuvil::text {
namespace {

struct Rule {
  std::string_view names;  // space separated
  std::vector<SplitFn> stages;
  bool ignore_merges = false;
};

const std::vector<Rule>& Rules() {
  static const auto* rules = new std::vector<Rule>{
      {"gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4 "
       "modern-bert jina-es jina-de jina-v2-es jina-v2-de",
       {SplitGpt2}},
      {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
       {SplitNumber, SplitGpt2}},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {SplitLlama3}, true},
      {"dbrx smaug-bpe glm4 chatglm-bpe", {SplitLlama3}},
      {"qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan solar-open grok-2 kormo", {SplitQwen2}},
      {"qwen35", {SplitQwen35}},
      {"gpt-4o llama4 kanana2", {SplitGpt4o}},
      {"tekken", {SplitTekken}, true},
      {"deepseek-v3 hunyuan-dense joyai-llm", {SplitNumbersUpTo3, SplitCjkKana, SplitDeepSeek3}},
      {"deepseek-coder",
       {SplitLineBreak, SplitSpaceLetters, SplitSpacePunctuation, SplitCjkHangul, SplitNumber}},
      {"falcon", {SplitPunctuationTick, SplitGpt2, SplitAsciiDigits3}},
      {"bloom gpt3-finnish poro-chat", {SplitBloom}},
      {"viking", {SplitBloom, SplitNumber}},
      {"default", {SplitPunctuation, SplitGpt2, SplitNumbers, SplitAsciiDigits3}},
  };
  return *rules;
}

bool Contains(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

// Splits the fragment [begin, end) of text: each match and each gap between matches is a piece.
void SplitFragment(std::string_view text, uint32_t begin, uint32_t end, SplitFn split,
                   std::vector<uint32_t>* ends) {
  const std::string_view fragment = text.substr(begin, end - begin);
  size_t gap = 0;
  size_t at = 0;
  while (at < fragment.size()) {
    const size_t match_end = split(fragment, at);
    if (match_end == 0) {
      at += DecodeUtf8(fragment, at).length;
      continue;
    }
    if (at > gap) ends->push_back(begin + static_cast<uint32_t>(at));
    ends->push_back(begin + static_cast<uint32_t>(match_end));
    gap = at = match_end;
  }
  if (fragment.size() > gap) ends->push_back(end);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  // A file without the key means the format's default.
  if (name.empty()) name = "default";
  constexpr size_t kNameShown = 64;  // a damaged file may hold megabytes here
  std::string known;
  for (const Rule& rule : Rules()) {
    if (Contains(rule.names, name)) {
      PreTokenizer made;
      made.stages_ = rule.stages;
      made.ignore_merges_ = rule.ignore_merges;
      return made;
    }
    if (!known.empty()) known.push_back(' ');
    known.append(rule.names);
  }
  return absl::InvalidArgumentError(absl::StrCat("the model's pre-tokenizer \"",
                                                 std::string(name.substr(0, kNameShown)),
                                                 "\" is not supported; supported are: ", known));
}

void PreTokenizer::Split(std::string_view text, std::vector<uint32_t>* ends) const {
  if (text.empty()) return;
  std::vector<uint32_t> pieces = {static_cast<uint32_t>(text.size())};
  std::vector<uint32_t> next;
  for (const SplitFn stage : stages_) {
    next.clear();
    uint32_t begin = 0;
    for (const uint32_t end : pieces) {
      SplitFragment(text, begin, end, stage, &next);
      begin = end;
    }
    pieces.swap(next);
  }
  ends->insert(ends->end(), pieces.begin(), pieces.end());
}

bool ImpliesBos(VocabKind kind, std::string_view pre) {
  if (kind == VocabKind::kSpm) return true;
  return Contains("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken", pre);
}

}  // namespace cuvil::text
