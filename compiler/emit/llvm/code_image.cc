#include "compiler/emit/llvm/code_image.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "compiler/emit/llvm/elf_object.h"

namespace cuvil::emit {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Code starts on a cache line, so that its loops lie the same in every image.
constexpr uint64_t kCodeAlign = 64;
constexpr uint8_t kTrap = 0xcc;  // int3, between functions
// Far above any program, and close enough together for 32-bit distances.
constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;

absl::Status Bad(const std::string& symbol, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("cannot link kernel '", symbol, "': ", why));
}

// Offsets of the sections of one object in the image.
using Offsets = std::vector<uint64_t>;

struct Layout {
  std::vector<Offsets> offsets;  // by object
  uint64_t constants = 0;        // where they begin; code is before, on pages of its own
  uint64_t bytes = 0;
};

absl::StatusOr<Layout> LayOut(const std::vector<ElfObject>& objects) {
  Layout layout;
  for (const ElfObject& object : objects) layout.offsets.emplace_back(object.sections.size());
  const absl::Status too_large = absl::InvalidArgumentError(
      absl::StrCat("code of more than ", kImageBytesMax, " bytes is not linked"));
  uint64_t end = 0;
  for (const bool code : {true, false}) {
    for (size_t i = 0; i < objects.size(); ++i) {
      for (size_t s = 0; s < objects[i].sections.size(); ++s) {
        const ElfObject::Section& section = objects[i].sections[s];
        if (section.code != code) continue;
        const uint64_t align = code ? std::max(section.align, kCodeAlign) : section.align;
        if (!CheckedAlignUp(end, align, &end)) return too_large;
        layout.offsets[i][s] = end;
        end += section.bytes.size();
        if (end > kImageBytesMax) return too_large;
      }
    }
    end = AlignUp(end, kPageBytes);
    if (code) layout.constants = end;
  }
  layout.bytes = end;
  return layout;
}

// Writes one field of a loaded section. `base` is where the image lies.
absl::Status Relocate(const ElfObject::Relocation& r, const Offsets& offsets, uint8_t* base) {
  uint8_t* const field = base + offsets[r.section] + r.offset;
  const auto place = static_cast<int64_t>(reinterpret_cast<uintptr_t>(field));
  const auto section = static_cast<int64_t>(reinterpret_cast<uintptr_t>(base + offsets[r.target]));
  int64_t value;
  const bool relative = r.type == R_X86_64_PC32 || r.type == R_X86_64_PLT32;
  if (!CheckedAdd(section + r.target_offset, r.addend, &value) ||
      (relative && !CheckedAdd(value, -place, &value))) {
    return absl::InvalidArgumentError("a relocation overflows");
  }
  if (r.type == R_X86_64_64) {
    std::memcpy(field, &value, sizeof value);
    return absl::OkStatus();
  }
  // An unsigned field for R_X86_64_32 alone.
  const int64_t low = r.type == R_X86_64_32 ? 0 : std::numeric_limits<int32_t>::min();
  const int64_t high = r.type == R_X86_64_32 ? int64_t{std::numeric_limits<uint32_t>::max()}
                                             : int64_t{std::numeric_limits<int32_t>::max()};
  if (value < low || value > high) {
    return absl::InvalidArgumentError("a relocation does not fit its 32 bits");
  }
  const auto narrow = static_cast<uint32_t>(value);
  std::memcpy(field, &narrow, sizeof narrow);
  return absl::OkStatus();
}

absl::Status Load(const ElfObject& object, const Offsets& offsets, uint8_t* base) {
  for (size_t s = 0; s < object.sections.size(); ++s) {
    const absl::Span<const uint8_t> bytes = object.sections[s].bytes;
    if (!bytes.empty()) std::memcpy(base + offsets[s], bytes.data(), bytes.size());
  }
  for (const ElfObject::Relocation& r : object.relocations) {
    RETURN_IF_ERROR(Relocate(r, offsets, base));
  }
  return absl::OkStatus();
}

absl::Status NoMemory(absl::string_view doing, uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot ", doing, " ", bytes, " bytes of code: ",
                                                   std::strerror(errno), "; free some memory"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CodeImage>> CodeImage::Link(absl::Span<const Object> objects) {
  std::vector<ElfObject> read;
  for (const Object& object : objects) {
    absl::StatusOr<ElfObject> one = ReadElfObject(object.bytes);
    if (!one.ok()) return Bad(object.symbol, one.status().message());
    read.push_back(*std::move(one));
  }
  ASSIGN_OR_RETURN(const Layout layout, LayOut(read));
  std::shared_ptr<CodeImage> image(new CodeImage());
  if (layout.bytes > 0) {
    void* mapping =
        mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return NoMemory("map", layout.bytes);
    image->mapping_ = static_cast<uint8_t*>(mapping);
    image->mapped_bytes_ = layout.bytes;
  }
  uint8_t* const base = image->mapping_;
  std::fill_n(base, layout.constants, kTrap);
  for (size_t i = 0; i < objects.size(); ++i) {
    const std::string& symbol = objects[i].symbol;
    if (const absl::Status s = Load(read[i], layout.offsets[i], base); !s.ok()) {
      return Bad(symbol, s.message());
    }
    const auto& functions = read[i].functions;
    const auto f = std::find_if(functions.begin(), functions.end(),
                                [&](const ElfObject::Function& g) { return g.name == symbol; });
    if (f == functions.end()) return Bad(symbol, "the object does not define it");
    const Entry entry{base + layout.offsets[i][f->section] + f->offset, f->size};
    if (!image->functions_.emplace(symbol, entry).second) return Bad(symbol, "it is there twice");
    image->object_bytes_ += objects[i].bytes.size();
  }
  const uint64_t constants = layout.bytes - layout.constants;
  if ((layout.constants > 0 && mprotect(base, layout.constants, PROT_READ | PROT_EXEC) != 0) ||
      (constants > 0 && mprotect(base + layout.constants, constants, PROT_READ) != 0)) {
    return NoMemory("protect", layout.bytes);
  }
  return std::shared_ptr<const CodeImage>(std::move(image));
}

CodeImage::~CodeImage() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

const CodeImage::Entry& CodeImage::Find(const std::string& symbol) const {
  const auto it = functions_.find(symbol);
  CUVIL_CHECK(it != functions_.end(), absl::StrCat("no kernel '", symbol, "' in this image"));
  return it->second;
}

KernelFn CodeImage::Function(const std::string& symbol) const {
  return reinterpret_cast<KernelFn>(const_cast<uint8_t*>(Find(symbol).address));
}

size_t CodeImage::FunctionBytes(const std::string& symbol) const { return Find(symbol).bytes; }

}  // namespace cuvil::emit
