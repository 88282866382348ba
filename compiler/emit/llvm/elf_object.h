// Reads the relocatable objects that our emitter makes (ELF64, x86-64) into what a linker needs:
// sections to load, functions, and relocations whose targets are known places of the same object.
// Objects come from a cache on disk: every offset, count and index is checked, and whatever the
// emitter never writes (writable data, symbols from elsewhere, thread-local storage) is an error.
//
// Pure; the views point into the bytes that were given. Any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace cuvil::emit {

struct ElfObject {
  struct Section {
    bool code = false;   // executed; otherwise constants
    uint64_t align = 1;  // a power of two, at most kElfAlignMax
    absl::Span<const uint8_t> bytes;
  };
  struct Function {
    std::string_view name;
    size_t section = 0;             // of code
    uint64_t offset = 0, size = 0;  // within the section
  };
  struct Relocation {
    size_t section = 0;         // where to write
    uint64_t offset = 0;        // the field lies within the section
    uint32_t type = 0;          // R_X86_64_64, PC32, PLT32, 32 or 32S
    size_t target = 0;          // section that the symbol is in
    int64_t target_offset = 0;  // of the symbol in it, at most one past its end
    int64_t addend = 0;
  };
  std::vector<Section> sections;
  std::vector<Function> functions;  // global ones
  std::vector<Relocation> relocations;
};

inline constexpr uint64_t kElfAlignMax = 4096;  // constants of a register need 64

// Bytes of the field a relocation of that type writes; 0 for a type that is not linked.
int RelocationBytes(uint32_t type);

// InvalidArgument, one sentence.
absl::StatusOr<ElfObject> ReadElfObject(absl::Span<const uint8_t> bytes);

}  // namespace cuvil::emit
