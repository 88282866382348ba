#include "compiler/import/gguf/cursor.h"

#include "absl/strings/escaping.h"

namespace cuvil::gguf {

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 80;  // enough to recognise a name, short enough for one line
  const bool cut = text.size() > kShown;
  return absl::StrCat("'", absl::CHexEscape(std::string(text.substr(0, kShown))),
                      cut ? "...'" : "'");
}

absl::Status Cursor::Take(uint64_t count, std::string_view what, absl::Span<const uint8_t>* out) {
  if (count > remaining()) {
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(what), " at byte ", position_, " needs ", count, " bytes but only ",
        remaining(), " are left; the file is cut short or corrupt"));
  }
  *out = bytes_.subspan(position_, count);
  position_ += count;
  return absl::OkStatus();
}

absl::Status Cursor::ReadString(std::string_view* out, std::string_view what) {
  uint64_t length;
  RETURN_IF_ERROR(Read(&length, what));
  if (length > kMaxStringBytes) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), " at byte ", position_,
                                                   " claims ", length, " bytes; the limit is ",
                                                   kMaxStringBytes));
  }
  absl::Span<const uint8_t> raw;
  RETURN_IF_ERROR(Take(length, what, &raw));
  *out = std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  return absl::OkStatus();
}

}  // namespace cuvil::gguf
