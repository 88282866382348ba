// Any bytes as a GGUF file: parse, read the config and the vocabulary, decode the first row of each
// tensor. Besides not crashing, everything together may allocate only a small multiple of the
// input.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "base/blocks.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/file.h"
#include "compiler/import/gguf/rope.h"
#include "compiler/import/gguf/tensors.h"
#include "compiler/import/gguf/vocab.h"

namespace {

// Bytes ever asked of operator new; a target runs on one thread.
size_t g_allocated = 0;

// Per input byte. The dense seeds need 6: the shortest token (8 bytes) becomes a view and a string
// (48). A row of 2-bit weights decodes to 12.
constexpr size_t kBytesPerInputByte = 24;
// Error messages, layer names and tables that do not depend on the input's size.
constexpr size_t kFixedBytes = 256 << 10;
// Of a row that long the rest decodes like the beginning; blocks have 256 elements at most.
constexpr int64_t kDecodedElements = 4096;

void DecodeFirstRows(const cuvil::gguf::File& file) {
  for (const cuvil::gguf::Tensor& tensor : file.tensors()) {
    if (!cuvil::CanDecode(tensor.dtype)) continue;
    std::vector<float> row(std::min(tensor.dims[0], kDecodedElements));
    cuvil::DecodeRow(tensor.dtype, tensor.data.data(), static_cast<int64_t>(row.size()),
                     row.data());
  }
}

void ReadModel(const cuvil::gguf::File& file) {
  const auto config = cuvil::gguf::ReadConfig(file);
  if (!config.ok()) return;
  CUVIL_CHECK(cuvil::gguf::BindTensors(file, *config).ok(), "a config must fit its file");
  for (int64_t layer = 0; layer < config->n_layer; ++layer) {
    for (const double frequency : cuvil::gguf::RopeFrequencies(*config, layer)) {
      CUVIL_CHECK(std::isfinite(frequency), "frequencies are finite");
    }
  }
}

}  // namespace

void* operator new(size_t size) {
  g_allocated += size;
  void* const p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) std::abort();
  return p;
}
void* operator new[](size_t size) { return operator new(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const size_t before = g_allocated;
  {
    const auto file = cuvil::gguf::File::Parse(nullptr, absl::MakeConstSpan(data, size), "fuzz");
    if (file.ok()) {
      ReadModel(**file);
      (void)cuvil::gguf::ReadVocab(**file);
      DecodeFirstRows(**file);
    }
  }
  const size_t allocated = g_allocated - before;
  CUVIL_CHECK(allocated <= kBytesPerInputByte * size + kFixedBytes,
              absl::StrCat(allocated, " bytes allocated for ", size, " bytes of input"));
  return 0;
}
