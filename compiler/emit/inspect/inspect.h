// Looks at emitted machine code: which instructions a function has, where its loops are and whether
// anything spills inside them. Tests assert on it ("no vector spill in any hot loop") and
// `cuvil explain` prints it. Reads x86-64 ELF objects; executes nothing. Any thread. The
// disassembler is LLVM's, in the shared module (compiler/emit/module) that the first call loads.
//
// A loop is the range from the target of a backward branch to the end of the last branch back to
// it; an innermost loop contains no other. Code the compiler moved out of that range (a cold block
// behind the return) is not counted in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cuvil::emit {

// Memory operands based on rsp, or on rbp where that is the frame pointer: spills and reloads.
// Vector ones (xmm, ymm, zmm) are not in the scalar counts.
struct StackTraffic {
  int loads = 0, stores = 0;
  int vector_loads = 0, vector_stores = 0;
  int total() const { return loads + stores + vector_loads + vector_stores; }
  bool operator==(const StackTraffic&) const = default;
};

struct LoopReport {
  uint64_t begin = 0, end = 0;  // bytes from the start of the function; end is past the branch
  int instructions = 0;
  int calls = 0;
  int broadcasts = 0;                    // memory operands broadcast by their instruction ({1to16})
  std::map<std::string, int> mnemonics;  // Intel names
  StackTraffic stack;
};

struct ObjectReport {
  std::string symbol;
  uint64_t code_bytes = 0;
  int instructions = 0;
  int calls = 0;
  StackTraffic stack;             // prologue and epilogue included, push and pop not
  std::vector<LoopReport> loops;  // innermost ones, by address
  std::string listing;            // one instruction a line: offset, Intel syntax
};

// InvalidArgument when the bytes are no x86-64 ELF object, when it has no such function, or when
// the function holds bytes that are no instruction. Errors of ModuleObject when there is no module.
absl::StatusOr<ObjectReport> Inspect(absl::Span<const uint8_t> elf_object, std::string_view symbol);

// What the module exports under kInspector.
struct Inspector {
  absl::StatusOr<ObjectReport> (*inspect)(absl::Span<const uint8_t> elf_object,
                                          std::string_view symbol);
};
inline constexpr char kInspector[] = "cuvil_inspector";

// A few lines for people: sizes, then each loop with its most frequent instructions.
std::string Summary(const ObjectReport& report);

}  // namespace cuvil::emit
