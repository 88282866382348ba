#include "base/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace cuvil {
namespace {

// Note segments hold a few short notes, program headers are a dozen.
constexpr uint64_t kNotesBytesMax = 1 << 16;
constexpr int kSegmentsMax = 256;

// The NT_GNU_BUILD_ID note among `notes`, as hex digits; empty when there is none.
std::string IdAmong(absl::Span<const uint8_t> notes) {
  constexpr uint64_t kAlign = 4;
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    notes.remove_prefix(sizeof note);
    const uint64_t name = (note.n_namesz + (kAlign - 1)) / kAlign * kAlign;
    if (name > notes.size() || note.n_descsz > notes.size() - name) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data(), "GNU", 4) == 0) {
      std::string hex;
      for (const uint8_t byte : notes.subspan(name, note.n_descsz)) {
        absl::StrAppendFormat(&hex, "%02x", byte);
      }
      return hex;
    }
    const uint64_t whole = name + (uint64_t{note.n_descsz} + (kAlign - 1)) / kAlign * kAlign;
    notes.remove_prefix(whole < notes.size() ? whole : notes.size());
  }
  return "";
}

struct Search {
  uintptr_t address = 0;  // 0: the main program, which the loader lists first
  std::string id;
};

int FindLoaded(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool holds = search.address == 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    holds |= segment.p_type == PT_LOAD && search.address >= begin &&
             search.address - begin < segment.p_memsz;
  }
  if (!holds) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const uint8_t*>(info->dlpi_addr + segment.p_vaddr);
    search.id = IdAmong({notes, segment.p_memsz});
  }
  return 1;
}

bool ReadAt(int fd, uint64_t offset, void* out, size_t bytes) {
  return offset <= INT64_MAX &&
         pread(fd, out, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string IdInFile(int fd) {
  Elf64_Ehdr header;
  if (!ReadAt(fd, 0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum > kSegmentsMax) {
    return "";
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!ReadAt(fd, header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) return "";
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kNotesBytesMax) continue;
    std::vector<uint8_t> notes(segment.p_filesz);
    if (!ReadAt(fd, segment.p_offset, notes.data(), notes.size())) continue;
    if (std::string id = IdAmong(notes); !id.empty()) return id;
  }
  return "";
}

}  // namespace

const std::string& BuildId() {
  static const std::string id = [] {
    Search search;
    dl_iterate_phdr(FindLoaded, &search);
    return search.id;
  }();
  return id;
}

std::string BuildIdAt(const void* address) {
  Search search{.address = reinterpret_cast<uintptr_t>(address)};
  dl_iterate_phdr(FindLoaded, &search);
  return search.id;
}

std::string BuildIdOfFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  std::string id = IdInFile(fd);
  close(fd);
  return id;
}

}  // namespace cuvil
