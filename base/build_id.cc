#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_format.h"

namespace cuvil {
namespace {

// Looks for the NT_GNU_BUILD_ID note of the main program, the first object the loader lists.
int FindNote(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const uint8_t*>(info->dlpi_addr + segment.p_vaddr);
    const uint8_t* const end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const uint8_t* name = at + sizeof note;
      const uint8_t* id = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        for (uint32_t b = 0; b < note.n_descsz; ++b) {
          absl::StrAppendFormat(static_cast<std::string*>(out), "%02x", id[b]);
        }
        return 1;
      }
      at = id + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

}  // namespace

const std::string& BuildId() {
  static const std::string id = [] {
    std::string out;
    dl_iterate_phdr(FindNote, &out);
    return out;
  }();
  return id;
}

}  // namespace cuvil
