#include "base/cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/machine.h"

namespace cuvil {
namespace {

constexpr int kArchReqXcompPerm = 0x1023;  // arch_prctl(2)
constexpr int kXfeatureXtiledata = 18;

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf Cpuid(unsigned leaf, unsigned sub) {
  Leaf l;
  __get_cpuid_count(leaf, sub, &l.a, &l.b, &l.c, &l.d);
  return l;
}

uint64_t Xcr0() {
  uint32_t lo, hi;
  asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<uint64_t>(hi) << 32) | lo;
}

CpuFeatures Detect() {
  CpuFeatures f;
  const Leaf l0 = Cpuid(0, 0);
  char vendor[13] = {};
  std::memcpy(vendor, &l0.b, 4);
  std::memcpy(vendor + 4, &l0.d, 4);
  std::memcpy(vendor + 8, &l0.c, 4);
  f.vendor = vendor;
  std::string brand;
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    const Leaf l = Cpuid(leaf, 0);
    brand.append(reinterpret_cast<const char*>(&l.a), 4);
    brand.append(reinterpret_cast<const char*>(&l.b), 4);
    brand.append(reinterpret_cast<const char*>(&l.c), 4);
    brand.append(reinterpret_cast<const char*>(&l.d), 4);
  }
  f.model = brand.c_str();
  const Leaf l1 = Cpuid(1, 0);
  const Leaf l7 = Cpuid(7, 0);
  const Leaf l71 = Cpuid(7, 1);
  const bool osxsave = l1.c & (1u << 27);
  const uint64_t xcr0 = osxsave ? Xcr0() : 0;
  const bool os_avx = (xcr0 & 0x6) == 0x6;
  const bool os_avx512 = (xcr0 & 0xe6) == 0xe6;
  const bool fma = l1.c & (1u << 12), f16c = l1.c & (1u << 29);
  f.avx2 = os_avx && fma && f16c && (l7.b & (1u << 5));
  const bool f512 = l7.b & (1u << 16), dq = l7.b & (1u << 17), bw = l7.b & (1u << 30),
             vl = l7.b & (1u << 31);
  f.avx512 = f.avx2 && os_avx512 && f512 && dq && bw && vl;
  f.avx512vnni = f.avx512 && (l7.c & (1u << 11));
  f.avx512bf16 = f.avx512 && (l71.a & (1u << 5));
  const bool amx_cpu = (l7.d & (1u << 24)) && (l7.d & (1u << 25)) && (l7.d & (1u << 22));
  if (amx_cpu) {
    if ((xcr0 & 0x60000) != 0x60000) {
      f.amx_note = "the operating system has not enabled AMX tile state";
    } else if (syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) != 0) {
      f.amx_note = std::string("the kernel refused AMX tile state: ") + std::strerror(errno);
    } else {
      f.amx = true;
    }
  }
  return f;
}

}  // namespace

std::vector<std::string> CpuFeatures::Names() const {
  std::vector<std::string> names;
  if (avx2) names.push_back("avx2");
  if (avx512) names.push_back("avx512");
  if (avx512vnni) names.push_back("avx512vnni");
  if (avx512bf16) names.push_back("avx512bf16");
  if (amx) names.push_back("amx");
  return names;
}

const CpuFeatures& AcquireCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

int UsableCores() { return ReadMachineLimits().cores; }

}  // namespace cuvil
