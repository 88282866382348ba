// Generates kernels for the conformance test: legal by construction (divisors are odd, conversions
// in range, dot4 bytes within their bound), with every recorded result stored to its own place, so
// that a difference points at the op that made it. Deterministic per seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "compiler/kernel/kir.h"

namespace cuvil::conformance {

// Where a recorded value lies in each tile's part of the output.
struct Slot {
  kernel::Value value;
  kernel::Type type;  // as stored: i1 lanes are stored as u8
  int64_t offset = 0;
};

struct Generated {
  kernel::Kernel kernel;  // buffers: x (read), y (written); scalars: count, flag
  std::vector<Slot> slots;
  int64_t tile_bytes = 0;  // of y
};

inline constexpr int64_t kRegionBytes = 8192;  // x has one region of values for each scalar type
inline constexpr int64_t kInputBytes = 12 * kRegionBytes;
inline constexpr int64_t kTiles = 3;

// Values of every scalar type: special ones, small ones and random bits.
std::vector<uint8_t> MakeInput(uint64_t seed);

// Every op that is legal for the type, once.
Generated EveryOpOf(kernel::Type type, uint64_t seed);

// A random program of about `ops` ops with loops, branches and scratch.
Generated RandomKernel(uint64_t seed, int ops);

}  // namespace cuvil::conformance
