// Arena: anonymous zeroed memory aligned to huge pages, unmapped when destroyed. Movable, one
// owner.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace cuvil::runtime {

inline constexpr int64_t kHugePageBytes = 2 << 20;

class Arena {
 public:
  Arena() = default;
  // ResourceExhausted when the system refuses. Huge pages are asked for, not promised.
  static absl::StatusOr<Arena> Map(int64_t bytes);
  Arena(Arena&& other) noexcept { *this = static_cast<Arena&&>(other); }
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Bytes in huge pages right now according to /proc/self/smaps; 0 if it cannot be read.
  int64_t HugePageBytes() const;

 private:
  uint8_t* data_ = nullptr;  // 2 MiB aligned
  int64_t bytes_ = 0;
  void* mapping_ = nullptr;
  int64_t mapped_ = 0;
};

}  // namespace cuvil::runtime
