// Objects come from a cache on disk: whatever the bytes, linking gives an image or a sentence.
#include <cstdint>
#include <string>

#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/elf_object.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cuvil::emit;
  const absl::Span<const uint8_t> bytes(data, size);
  std::string symbol = "kernel";
  if (const auto object = ReadElfObject(bytes); object.ok() && !object->functions.empty()) {
    symbol = std::string(object->functions.front().name);
  }
  const CodeImage::Object object{symbol, bytes};
  if (const auto image = CodeImage::Link({&object, 1}); image.ok()) {
    CUVIL_CHECK((*image)->FunctionBytes(symbol) <= size, "a function is part of its object");
    // Readable to its end; not run.
    const auto* code = reinterpret_cast<const volatile uint8_t*>((*image)->Function(symbol));
    for (size_t i = 0; i < (*image)->FunctionBytes(symbol); ++i) (void)code[i];
  }
  return 0;
}
