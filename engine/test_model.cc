#include "engine/test_model.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace cuvil::engine {

std::string TinyModel(std::string_view name) {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  return absl::StrCat(root == nullptr ? "." : root, "/tests/data/gguf/", Sv(name), ".gguf");
}

std::string WriteLongModel(std::string_view test) {
  auto bytes = ReadFile(TinyModel("llama-q4_1"), 1 << 20);
  CUVIL_CHECK(bytes.ok(), bytes.status().message());
  const std::string key = "llama.context_length";
  const size_t at = bytes->find(key);
  CUVIL_CHECK(at != std::string::npos, "the model has a context length");
  uint32_t type, value;
  std::memcpy(&type, bytes->data() + at + key.size(), 4);
  std::memcpy(&value, bytes->data() + at + key.size() + 4, 4);
  CUVIL_CHECK(type == 4 && value == 128, "a u32 of 128");
  value = kLongContext;
  std::memcpy(bytes->data() + at + key.size() + 4, &value, 4);
  const std::string path = (std::filesystem::temp_directory_path() /
                            absl::StrCat("cuvil_", Sv(test), "_", getpid(), ".gguf"))
                               .string();
  std::ofstream(path, std::ios::binary) << *bytes;
  return path;
}

}  // namespace cuvil::engine
