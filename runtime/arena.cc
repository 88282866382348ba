#include "runtime/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "base/checked.h"

namespace cuvil::runtime {

absl::StatusOr<Arena> Arena::Map(int64_t bytes) {
  uint64_t rounded;
  if (bytes < 0 || !CheckedAlignUp(static_cast<uint64_t>(bytes), kHugePageBytes, &rounded) ||
      rounded > (uint64_t{1} << 47)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot map a region of ", bytes, " bytes"));
  }
  Arena arena;
  // One huge page more, so that an aligned start fits.
  arena.mapped_ = static_cast<int64_t>(rounded) + kHugePageBytes;
  arena.mapping_ = mmap(nullptr, arena.mapped_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena.mapping_ == MAP_FAILED) {
    arena.mapping_ = nullptr;
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for a region of ", bytes, " bytes; use a smaller model or free some memory"));
  }
  const uintptr_t start = reinterpret_cast<uintptr_t>(arena.mapping_);
  arena.data_ = reinterpret_cast<uint8_t*>(AlignUp<uintptr_t>(start, kHugePageBytes));
  arena.bytes_ = bytes;
  madvise(arena.data_, rounded, MADV_HUGEPAGE);  // advice: HugePageBytes tells what came of it
  return arena;
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

int64_t Arena::HugePageBytes() const {
  std::FILE* file = std::fopen("/proc/self/smaps", "re");
  if (file == nullptr) return 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data_), end = begin + bytes_;
  int64_t kilobytes = 0, value;
  bool inside = false;
  uintptr_t low, high;
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2) {
      inside = low < end && begin < high;
    } else if (inside && std::sscanf(line, "AnonHugePages: %" SCNd64 " kB", &value) == 1) {
      kilobytes += value;
    }
  }
  std::fclose(file);
  return std::min(kilobytes * 1024, AlignUp(bytes_, kHugePageBytes));
}

}  // namespace cuvil::runtime
