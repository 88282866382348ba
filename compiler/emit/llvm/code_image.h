// Executable code: objects linked into this process. Built by one thread, then immutable; the
// functions may be called from any thread for as long as the image lives. Pages are written, then
// made read-only, those of code executable: never both writable and executable. An object refers
// to nothing outside itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "compiler/emit/llvm/kernel_fn.h"

namespace cuvil::emit {

class CodeImage {
 public:
  struct Object {
    std::string symbol;               // the one function it must define
    absl::Span<const uint8_t> bytes;  // the very buffer that was verified is the one linked
  };
  // InvalidArgument when an object is none that our emitter makes, lacks its symbol or refers to
  // one outside, or when two have the same symbol; ResourceExhausted without memory for the image.
  static absl::StatusOr<std::shared_ptr<const CodeImage>> Link(absl::Span<const Object> objects);
  ~CodeImage();
  CodeImage(const CodeImage&) = delete;
  CodeImage& operator=(const CodeImage&) = delete;

  // CHECK that the symbol is one of those linked.
  KernelFn Function(const std::string& symbol) const;
  size_t FunctionBytes(const std::string& symbol) const;
  // Bytes of the objects linked: code, constants and their ELF tables.
  size_t code_bytes() const { return object_bytes_; }

 private:
  struct Entry {
    const uint8_t* address = nullptr;
    size_t bytes = 0;
  };
  CodeImage() = default;
  const Entry& Find(const std::string& symbol) const;

  uint8_t* mapping_ = nullptr;
  size_t mapped_bytes_ = 0, object_bytes_ = 0;
  std::map<std::string, Entry> functions_;
};

}  // namespace cuvil::emit
