// A bounds-checked little-endian reader over bytes from outside. Every read either succeeds inside
// the span or returns one sentence that says what was being read, where, and how much was missing.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "base/status.h"

namespace cuvil::gguf {

// No key, token or template comes near 64 MiB; a longer length field is a corrupt file.
inline constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;

// `text` in single quotes, escaped to printable ASCII and shortened, for error messages.
std::string Quoted(std::string_view text);

class Cursor {
 public:
  explicit Cursor(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // Reads a scalar; `what` names it in an error.
  template <typename T>
  absl::Status Read(T* out, std::string_view what) {
    absl::Span<const uint8_t> raw;
    RETURN_IF_ERROR(Take(sizeof(T), what, &raw));
    std::memcpy(out, raw.data(), sizeof(T));
    return absl::OkStatus();
  }

  // Takes the next `count` bytes without copying them.
  absl::Status Take(uint64_t count, std::string_view what, absl::Span<const uint8_t>* out);

  // Reads a 64-bit length and that many bytes, at most kMaxStringBytes; the view lies in the span.
  absl::Status ReadString(std::string_view* out, std::string_view what);

 private:
  absl::Span<const uint8_t> bytes_;
  uint64_t position_ = 0;
};

}  // namespace cuvil::gguf
