// Executable code: objects linked into this process. Built by one thread, then immutable; the
// functions may be called from any thread for as long as the image lives. Pages are written, then
// made read-only and executable: never both. Symbols resolve inside the image only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/emit/llvm/emit.h"

namespace cuvil::emit {

class CodeImage {
 public:
  struct Object {
    std::string symbol;               // the one function it must define
    absl::Span<const uint8_t> bytes;  // the very buffer that was verified is the one linked
  };
  // Internal when an object is no object of this machine, lacks its symbol or refers to one
  // outside.
  static absl::StatusOr<std::shared_ptr<const CodeImage>> Link(absl::Span<const Object> objects);
  virtual ~CodeImage() = default;

  // CHECKs that the symbol is one of those linked.
  virtual KernelFn Function(const std::string& symbol) const = 0;
  // Bytes of the objects linked: code, constants and their ELF tables.
  virtual size_t code_bytes() const = 0;
};

}  // namespace cuvil::emit
