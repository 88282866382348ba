#include "compiler/emit/llvm/elf_object.h"

#include <elf.h>

#include <cstring>
#include <limits>

#include "base/checked.h"

namespace cuvil::emit {
namespace {

constexpr size_t kNotLoaded = std::numeric_limits<size_t>::max();

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("object code: ", why));
}

// Copies a record out of the bytes: they have no alignment.
template <typename Record>
Record At(absl::Span<const uint8_t> bytes, size_t index) {
  Record record;
  std::memcpy(&record, bytes.data() + index * sizeof(Record), sizeof record);
  return record;
}

class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  absl::StatusOr<ElfObject> Read() {
    RETURN_IF_ERROR(ReadHeaders());
    RETURN_IF_ERROR(ReadSections());
    RETURN_IF_ERROR(ReadSymbols());
    for (const Elf64_Shdr& header : headers_) RETURN_IF_ERROR(ReadRelocations(header));
    return std::move(object_);
  }

 private:
  absl::StatusOr<absl::Span<const uint8_t>> Range(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
      return Bad(absl::StrCat("bytes ", offset, " to ", offset, " + ", size, " are past its end (",
                              bytes_.size(), " bytes)"));
    }
    return bytes_.subspan(offset, size);
  }

  absl::Status ReadHeaders() {
    if (bytes_.size() < sizeof(Elf64_Ehdr)) return Bad("too short for an ELF header");
    const auto header = At<Elf64_Ehdr>(bytes_, 0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Bad("no ELF file");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != EM_X86_64) {
      return Bad("not for x86-64");
    }
    if (header.e_type != ET_REL) return Bad("not relocatable");
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0) {
      return Bad("no section headers that we read");
    }
    ASSIGN_OR_RETURN(const auto table,
                     Range(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)));
    for (size_t i = 0; i < header.e_shnum; ++i) headers_.push_back(At<Elf64_Shdr>(table, i));
    if (header.e_shstrndx >= headers_.size()) return Bad("no section names");
    ASSIGN_OR_RETURN(names_, Contents(headers_[header.e_shstrndx], SHT_STRTAB));
    return absl::OkStatus();
  }

  // The bytes of a section that must have this type.
  absl::StatusOr<absl::Span<const uint8_t>> Contents(const Elf64_Shdr& header,
                                                     uint32_t type) const {
    if (header.sh_type != type) {
      return Bad(absl::StrCat("a section has type ", header.sh_type, ", not ", type));
    }
    return Range(header.sh_offset, header.sh_size);
  }

  static absl::StatusOr<std::string_view> Name(absl::Span<const uint8_t> table, uint64_t at) {
    if (at >= table.size()) return Bad("a name is outside its table");
    const char* begin = reinterpret_cast<const char*>(table.data()) + at;
    const size_t length = strnlen(begin, table.size() - at);
    if (length == table.size() - at) return Bad("a name has no end");
    return std::string_view(begin, length);
  }

  absl::Status ReadSections() {
    places_.assign(headers_.size(), kNotLoaded);
    uint64_t loaded = 0;
    for (size_t i = 0; i < headers_.size(); ++i) {
      const Elf64_Shdr& header = headers_[i];
      if ((header.sh_flags & SHF_ALLOC) == 0) continue;
      ASSIGN_OR_RETURN(const std::string_view name, Name(names_, header.sh_name));
      if (name == ".eh_frame") continue;  // kernels do not unwind
      const auto refuse = [&](absl::string_view why) {
        return Bad(absl::StrCat("section '", Sv(name), "' ", why));
      };
      if ((header.sh_flags & SHF_WRITE) != 0) return refuse("is writable");
      if ((header.sh_flags & (SHF_TLS | SHF_COMPRESSED)) != 0) {
        return refuse("is compressed or of one thread each");
      }
      if (header.sh_type != SHT_PROGBITS) {
        return refuse(absl::StrCat("has type ", header.sh_type, ", not bytes of the program"));
      }
      const uint64_t align = header.sh_addralign == 0 ? 1 : header.sh_addralign;
      if ((align & (align - 1)) != 0 || align > kElfAlignMax) {
        return refuse(absl::StrCat("wants alignment ", header.sh_addralign));
      }
      ASSIGN_OR_RETURN(const auto bytes, Range(header.sh_offset, header.sh_size));
      // Each byte of the file is loaded at most once, so an image is not larger than its objects.
      loaded += bytes.size();
      if (loaded > bytes_.size()) return refuse("overlaps another");
      places_[i] = object_.sections.size();
      object_.sections.push_back({(header.sh_flags & SHF_EXECINSTR) != 0, align, bytes});
    }
    return absl::OkStatus();
  }

  absl::Status ReadSymbols() {
    const Elf64_Shdr* table = nullptr;
    for (const Elf64_Shdr& header : headers_) {
      if (header.sh_type != SHT_SYMTAB) continue;
      if (table != nullptr) return Bad("two symbol tables");
      table = &header;
    }
    if (table == nullptr) return Bad("no symbol table");
    if (table->sh_link >= headers_.size()) return Bad("its symbols have no names");
    ASSIGN_OR_RETURN(symbols_, Contents(*table, SHT_SYMTAB));
    ASSIGN_OR_RETURN(symbol_names_, Contents(headers_[table->sh_link], SHT_STRTAB));
    if (symbols_.size() % sizeof(Elf64_Sym) != 0) return Bad("its symbol table is cut off");
    symbol_table_ = table;
    for (size_t i = 0; i < symbols_.size() / sizeof(Elf64_Sym); ++i) {
      const auto symbol = At<Elf64_Sym>(symbols_, i);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
          ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || symbol.st_shndx == SHN_UNDEF) {
        continue;
      }
      ASSIGN_OR_RETURN(const std::string_view name, Name(symbol_names_, symbol.st_name));
      const size_t place = Place(symbol);
      if (place == kNotLoaded || !object_.sections[place].code) {
        return Bad(absl::StrCat("function '", Sv(name), "' is in no section of code"));
      }
      const uint64_t bytes = object_.sections[place].bytes.size();
      if (symbol.st_value >= bytes || symbol.st_size > bytes - symbol.st_value) {
        return Bad(absl::StrCat("function '", Sv(name), "' is outside its section"));
      }
      object_.functions.push_back({name, place, symbol.st_value, symbol.st_size});
    }
    return absl::OkStatus();
  }

  // Index in object_.sections of the section that defines a symbol.
  size_t Place(const Elf64_Sym& symbol) const {
    return symbol.st_shndx < places_.size() ? places_[symbol.st_shndx] : kNotLoaded;
  }

  absl::Status ReadRelocations(const Elf64_Shdr& header) {
    if (header.sh_type != SHT_RELA && header.sh_type != SHT_REL) return absl::OkStatus();
    if (header.sh_info >= places_.size()) return Bad("relocations of a section that is not there");
    const size_t place = places_[header.sh_info];
    if (place == kNotLoaded) return absl::OkStatus();
    if (header.sh_type == SHT_REL) return Bad("relocations without addends");
    if (header.sh_link >= headers_.size() || &headers_[header.sh_link] != symbol_table_) {
      return Bad("relocations of another symbol table");
    }
    ASSIGN_OR_RETURN(const auto table, Contents(header, SHT_RELA));
    if (table.size() % sizeof(Elf64_Rela) != 0) return Bad("a relocation table is cut off");
    for (size_t i = 0; i < table.size() / sizeof(Elf64_Rela); ++i) {
      RETURN_IF_ERROR(AddRelocation(place, At<Elf64_Rela>(table, i)));
    }
    return absl::OkStatus();
  }

  absl::Status AddRelocation(size_t place, const Elf64_Rela& entry) {
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info));
    const auto width = static_cast<uint64_t>(RelocationBytes(type));
    if (width == 0) return Bad(absl::StrCat("relocations of type ", type, " are not linked"));
    const uint64_t bytes = object_.sections[place].bytes.size();
    if (entry.r_offset > bytes || width > bytes - entry.r_offset) {
      return Bad("a relocation is outside its section");
    }
    const uint64_t index = ELF64_R_SYM(entry.r_info);
    if (index >= symbols_.size() / sizeof(Elf64_Sym)) return Bad("a relocation has no symbol");
    const auto symbol = At<Elf64_Sym>(symbols_, index);
    const size_t target = Place(symbol);
    if (target == kNotLoaded) {
      ASSIGN_OR_RETURN(const std::string_view name, Name(symbol_names_, symbol.st_name));
      return Bad(absl::StrCat("it refers to '", Sv(name), "', which it does not define"));
    }
    if (symbol.st_value > object_.sections[target].bytes.size()) {
      return Bad("a symbol is outside its section");
    }
    object_.relocations.push_back({place, entry.r_offset, type, target,
                                   static_cast<int64_t>(symbol.st_value), entry.r_addend});
    return absl::OkStatus();
  }

  const absl::Span<const uint8_t> bytes_;
  std::vector<Elf64_Shdr> headers_;
  absl::Span<const uint8_t> names_, symbols_, symbol_names_;
  const Elf64_Shdr* symbol_table_ = nullptr;
  std::vector<size_t> places_;  // by section number: index in object_.sections, or kNotLoaded
  ElfObject object_;
};

}  // namespace

int RelocationBytes(uint32_t type) {
  switch (type) {
    case R_X86_64_64:
      return 8;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_32:
    case R_X86_64_32S:
      return 4;
    default:
      return 0;
  }
}

absl::StatusOr<ElfObject> ReadElfObject(absl::Span<const uint8_t> bytes) {
  return Reader(bytes).Read();
}

}  // namespace cuvil::emit
