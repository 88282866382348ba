// The tokenizer's share of a GGUF file's metadata.
#pragma once

#include "base/status.h"
#include "compiler/import/gguf/file.h"
#include "text/vocab.h"

namespace cuvil::gguf {

// Copies the vocabulary out of the file. Lists have one entry per token and every special id is
// below the token count or -1; whether the tokens make a working tokenizer is Tokenizer::Create's
// to check.
absl::StatusOr<text::VocabSpec> ReadVocab(const File& file);

}  // namespace cuvil::gguf
