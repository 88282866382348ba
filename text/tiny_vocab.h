// A vocabulary small enough to write down, for tests and fuzz targets: all bytes, the given merges
// and a few special tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/byte_level.h"
#include "text/vocab.h"

namespace cuvil::text {

inline VocabSpec TinyBpe(std::vector<std::string> merges, std::string pre = "smollm") {
  VocabSpec spec;
  spec.kind = VocabKind::kBpe;
  spec.pre = std::move(pre);
  const auto add = [&spec](std::string text, TokenType type) {
    spec.tokens.push_back(std::move(text));
    spec.types.push_back(type);
  };
  add("<s>", TokenType::kControl);
  add("<|im_end|>", TokenType::kControl);
  add("<user>", TokenType::kUserDefined);
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string(ByteLevelChar(static_cast<uint8_t>(byte))), TokenType::kNormal);
  }
  for (const std::string& merge : merges) {
    std::string joined = merge;
    if (const size_t space = joined.find(' ', 1); space != std::string::npos) {
      joined.erase(space, 1);
    }
    add(std::move(joined), TokenType::kNormal);
  }
  spec.merges = std::move(merges);
  spec.bos = 0;
  spec.eos = 1;
  return spec;
}

}  // namespace cuvil::text
