// The kernel interpreter: the meaning of every kernel op, and the oracle every backend is compared
// with bit for bit. It runs a kernel on real buffers, the way the worst allowed machine would:
//   - tiles run in an order shuffled by the seed and land on random workers, one at a time;
//   - each worker has its own scratch, poisoned at the start (NaN bytes for an even seed, 0xa5 for
//   an
//     odd one), kept from tile to tile; `once` bodies run on a worker's first tile;
//   - every access is checked against its buffer's size;
//   - a byte of a written buffer that one tile writes and another tile reads or writes is a race,
//     whichever came first. A tile may read what was there before the launch, and its own bytes.
//
// Floating point is IEEE with round to nearest even and denormals; integers wrap. What a kernel
// must not do (divide by zero, convert a float out of range, break a dot4 bound) ends the run with
// an error that names the op. NaN results are NaN, payload and sign unspecified.
//
// Calls are independent: any thread, no shared state.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/kernel/kir.h"

namespace cuvil::kernel {

inline constexpr int64_t kTilesMax = int64_t{1} << 28;  // their order takes 4 bytes each

struct Launch {
  std::vector<absl::Span<uint8_t>>
      buffers;                   // one per Kernel::buffers; written ones overlap no other
  std::vector<int64_t> scalars;  // one per Kernel::scalars
  int64_t tiles = 1;
  uint64_t seed = 0;
  int workers = 2;
  int64_t steps_max = int64_t{10'000'000'000};  // ops executed before the run is called endless
};

// Runs all tiles. InvalidArgument when the kernel does not verify or the launch does not fit it;
// FailedPrecondition when the kernel does something it must not, with op, tile and place. After an
// error the written buffers hold a partial result.
absl::Status Run(const Kernel& kernel, const Launch& launch);

}  // namespace cuvil::kernel
