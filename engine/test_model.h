// Small model files for the tests of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cuvil::engine {

// tests/data/gguf/<name>.gguf: a vocabulary of 272 and a context of 128.
std::string TinyModel(std::string_view name);

inline constexpr int64_t kLongContext = 1024;  // four key blocks, so that attention is cut

// llama-q4_1 with a context of kLongContext, as a file of its own, which the caller removes.
std::string WriteLongModel(std::string_view test);

}  // namespace cuvil::engine
