#include "compiler/emit/llvm/code_image.h"

#include <elf.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "compiler/emit/llvm/elf_object.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/kir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::emit {
namespace {

using kernel::Builder;
using kernel::F32x;
using kernel::Value;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// y = a * x + b for eight lanes: two constants, so that the object has relocations.
Bytes AxpyObject(const std::string& name, float a, float b) {
  Builder k(name);
  const kernel::Buf x = k.Buffer("x"), y = k.Buffer("y", true);
  const Value zero = k.Int(0);
  k.Store(k.Fma(k.Load(F32x(8), x, zero), k.Float(a, F32x(8)), k.Float(b, F32x(8))), y, zero);
  absl::StatusOr<Emitted> e = EmitObject(k.Finish(), *FindTarget("cpu:avx2"));
  EXPECT_EQ(e.status(), absl::OkStatus());
  return e.ok() ? std::move(e->object) : Bytes{};
}

absl::StatusOr<std::shared_ptr<const CodeImage>> Link(const Bytes& object,
                                                      const std::string& symbol = "axpy") {
  const CodeImage::Object one{symbol, object};
  return CodeImage::Link({&one, 1});
}

float RunAxpy(const CodeImage& image, const std::string& symbol, float x) {
  alignas(32) float in[8], out[8];
  std::fill_n(in, 8, x);
  uint8_t* const buffers[] = {reinterpret_cast<uint8_t*>(in), reinterpret_cast<uint8_t*>(out)};
  image.Function(symbol)(buffers, nullptr, nullptr, 0, 1);
  return out[7];
}

// "r-xp" of the mapping that holds an address.
std::string Permissions(const void* address) {
  std::FILE* file = std::fopen("/proc/self/maps", "re");
  char line[512], mode[8], found[8] = "";
  unsigned long begin, end;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "%lx-%lx %7s", &begin, &end, mode) != 3) continue;
    const auto at = reinterpret_cast<unsigned long>(address);
    if (begin <= at && at < end) std::strcpy(found, mode);
  }
  if (file != nullptr) std::fclose(file);
  return found;
}

// Edits the records of an object in place.
class Patch {
 public:
  explicit Patch(Bytes object) : bytes_(std::move(object)) {}
  Elf64_Ehdr& header() { return *reinterpret_cast<Elf64_Ehdr*>(bytes_.data()); }
  Elf64_Shdr* sections() { return reinterpret_cast<Elf64_Shdr*>(&bytes_[header().e_shoff]); }
  std::string NameOf(const Elf64_Shdr& s) {
    return reinterpret_cast<char*>(&bytes_[sections()[header().e_shstrndx].sh_offset + s.sh_name]);
  }
  Elf64_Shdr& section(const std::string& prefix) {
    for (int i = 0; i < header().e_shnum; ++i) {
      if (NameOf(sections()[i]).starts_with(prefix)) return sections()[i];
    }
    ADD_FAILURE() << "no section " << prefix;
    return sections()[0];
  }
  Elf64_Rela& relocation() {
    return *reinterpret_cast<Elf64_Rela*>(&bytes_[section(".rela.text").sh_offset]);
  }
  Elf64_Sym& symbol(size_t index) {
    return reinterpret_cast<Elf64_Sym*>(&bytes_[section(".symtab").sh_offset])[index];
  }
  Elf64_Sym& constant() { return symbol(ELF64_R_SYM(relocation().r_info)); }
  Elf64_Sym& function() {
    const size_t count = section(".symtab").sh_size / sizeof(Elf64_Sym);
    return symbol(count - 1);  // the only global one
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

TEST(CodeImage, RunsWhatWasEmitted) {
  const Bytes one = AxpyObject("axpy", 3, 0.25), two = AxpyObject("other", -2, 1);
  const CodeImage::Object objects[] = {{"axpy", one}, {"other", two}};
  const auto image = CodeImage::Link(objects);
  ASSERT_EQ(image.status(), absl::OkStatus());
  EXPECT_EQ(RunAxpy(**image, "axpy", 2), 6.25f);
  EXPECT_EQ(RunAxpy(**image, "other", 2), -3.0f);
  EXPECT_EQ((*image)->code_bytes(), one.size() + two.size());
  EXPECT_EQ((*image)->FunctionBytes("axpy"), Patch(one).function().st_size);
}

TEST(CodeImage, CodeIsNotWritableAndConstantsDoNotRun) {
  const Bytes object = AxpyObject("axpy", 3, 0.25);
  const auto image = Link(object);
  ASSERT_EQ(image.status(), absl::OkStatus());
  const auto code = reinterpret_cast<uintptr_t>((*image)->Function("axpy"));
  EXPECT_EQ(Permissions(reinterpret_cast<void*>(code)), "r-xp");
  // One page of code, then one of constants.
  EXPECT_EQ(Permissions(reinterpret_cast<void*>(code / 4096 * 4096 + 4096)), "r--p");
}

TEST(CodeImage, NothingIsAnImageToo) { EXPECT_EQ(CodeImage::Link({}).status(), absl::OkStatus()); }

TEST(CodeImage, RefusesSymbolsThatAreMissingOrDouble) {
  const Bytes object = AxpyObject("axpy", 3, 0.25);
  EXPECT_THAT(Link(object, "other").status().message(),
              HasSubstr("cannot link kernel 'other': the object does not define it"));
  const CodeImage::Object twice[] = {{"axpy", object}, {"axpy", object}};
  EXPECT_THAT(CodeImage::Link(twice).status().message(), HasSubstr("it is there twice"));
}

// What each damage is called. A linker that believed any of these would write out of bounds, run
// data or call into nowhere.
TEST(CodeImage, RefusesDamage) {
  const Bytes good = AxpyObject("axpy", 3, 0.25);
  ASSERT_EQ(Link(good).status(), absl::OkStatus());
  const struct {
    const char* says;
    std::function<void(Patch&)> damage;
  } cases[] = {
      {"no ELF file", [](Patch& p) { p.header().e_ident[1] = 'F'; }},
      {"not for x86-64", [](Patch& p) { p.header().e_machine = EM_AARCH64; }},
      {"not for x86-64", [](Patch& p) { p.header().e_ident[EI_CLASS] = ELFCLASS32; }},
      {"not relocatable", [](Patch& p) { p.header().e_type = ET_DYN; }},
      {"no section headers", [](Patch& p) { p.header().e_shnum = 0; }},
      {"past its end", [](Patch& p) { p.header().e_shoff = ~uint64_t{0} - 8; }},
      {"no section names", [](Patch& p) { p.header().e_shstrndx = 0xfff0; }},
      {"past its end", [](Patch& p) { p.section(".text").sh_offset = uint64_t{1} << 63; }},
      {"past its end", [](Patch& p) { p.section(".text").sh_size = ~uint64_t{0}; }},
      {"overlaps another",
       [](Patch& p) {
         p.section(".text").sh_offset = p.section(".rodata").sh_offset = 0;
         p.section(".text").sh_size = p.section(".rodata").sh_size = p.bytes().size();
       }},
      {"is writable", [](Patch& p) { p.section(".rodata").sh_flags |= SHF_WRITE; }},
      {"of one thread each", [](Patch& p) { p.section(".rodata").sh_flags |= SHF_TLS; }},
      {"not bytes of the program", [](Patch& p) { p.section(".rodata").sh_type = SHT_NOBITS; }},
      {"wants alignment 24", [](Patch& p) { p.section(".rodata").sh_addralign = 24; }},
      {"wants alignment", [](Patch& p) { p.section(".text").sh_addralign = uint64_t{1} << 40; }},
      {"a name is outside", [](Patch& p) { p.section(".text").sh_name = 1 << 30; }},
      {"no symbol table", [](Patch& p) { p.section(".symtab").sh_type = SHT_NULL; }},
      {"is cut off", [](Patch& p) { p.section(".symtab").sh_size -= 1; }},
      {"have no names", [](Patch& p) { p.section(".symtab").sh_link = 99; }},
      {"is in no section of code", [](Patch& p) { p.function().st_shndx = SHN_ABS; }},
      {"is in no section of code", [](Patch& p) { p.function().st_shndx = p.constant().st_shndx; }},
      {"is outside its section", [](Patch& p) { p.function().st_size = 1 << 20; }},
      {"is outside its section", [](Patch& p) { p.function().st_value = ~uint64_t{0}; }},
      {"it refers to '", [](Patch& p) { p.constant().st_shndx = SHN_UNDEF; }},
      {"it refers to '", [](Patch& p) { p.constant().st_shndx = SHN_COMMON; }},
      {"a symbol is outside", [](Patch& p) { p.constant().st_value = 1 << 20; }},
      {"has no symbol", [](Patch& p) { p.relocation().r_info |= uint64_t{0xffffffff} << 32; }},
      {"of type 9 are not linked",  // GOTPCREL
       [](Patch& p) {
         p.relocation().r_info = p.relocation().r_info >> 32 << 32 | R_X86_64_GOTPCREL;
       }},
      {"a relocation is outside", [](Patch& p) { p.relocation().r_offset = ~uint64_t{0}; }},
      {"a relocation is outside",
       [](Patch& p) { p.relocation().r_offset = p.section(".text").sh_size - 3; }},
      {"does not fit its 32 bits", [](Patch& p) { p.relocation().r_addend = int64_t{1} << 31; }},
      {"overflows",
       [](Patch& p) { p.relocation().r_addend = std::numeric_limits<int64_t>::max(); }},
      {"does not fit its 32 bits",  // an address is above 4 GiB
       [](Patch& p) { p.relocation().r_info = p.relocation().r_info >> 32 << 32 | R_X86_64_32; }},
      {"without addends", [](Patch& p) { p.section(".rela.text").sh_type = SHT_REL; }},
      {"of a section that is not there", [](Patch& p) { p.section(".rela.text").sh_info = 99; }},
      {"of another symbol table", [](Patch& p) { p.section(".rela.text").sh_link = 99; }},
      {"is cut off", [](Patch& p) { p.section(".rela.text").sh_size -= 1; }},
  };
  for (const auto& c : cases) {
    Patch patch(good);
    c.damage(patch);
    const absl::Status status = Link(patch.bytes()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(status.message(), HasSubstr(c.says));
  }
}

TEST(CodeImage, WritesEveryKindOfField) {
  Patch patch(AxpyObject("axpy", 3, 0.25));
  // Eight bytes over the end of the code, which is not run: the absolute address of a constant.
  const uint64_t at = patch.section(".text").sh_size - 8;
  patch.relocation().r_offset = at;
  patch.relocation().r_addend = 0;
  patch.relocation().r_info = patch.relocation().r_info >> 32 << 32 | R_X86_64_64;
  const auto image = Link(patch.bytes());
  ASSERT_EQ(image.status(), absl::OkStatus());
  const auto* code = reinterpret_cast<const uint8_t*>((*image)->Function("axpy"));
  const float* constant;
  std::memcpy(&constant, code + at, sizeof constant);
  EXPECT_EQ(Permissions(constant), "r--p");
  EXPECT_THAT(*constant, ::testing::AnyOf(3.0f, 0.25f));
}

TEST(CodeImage, EveryPrefixIsRefused) {
  const Bytes good = AxpyObject("axpy", 3, 0.25);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(Link(Bytes(good.begin(), good.begin() + static_cast<int64_t>(size))).ok()) << size;
  }
}

// A section that is not loaded may say what it likes.
TEST(CodeImage, IgnoresWhatIsNotLoaded) {
  Patch patch(AxpyObject("axpy", 3, 0.25));
  Elf64_Shdr& note = patch.section(".note.GNU-stack");
  note.sh_size = uint64_t{1} << 60;
  EXPECT_EQ(Link(patch.bytes()).status(), absl::OkStatus());
}

}  // namespace
}  // namespace cuvil::emit
