// Inside the interpreter: a kernel decoded into steps with direct function pointers, and the state
// they run on. Values live at fixed offsets of one arena, lanes packed; i1 lanes are bytes 0 or 1.
// One Machine serves one Run on one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/kernel/kir.h"

namespace cuvil::kernel::interp {

struct Machine;
struct Step;
using Exec = bool (*)(const Step&, Machine&);  // false: Machine::error says why

struct Step {
  Exec exec = nullptr;
  int op = 0;                    // index in Kernel::ops
  uint32_t out = 0, in[3] = {};  // arena offsets
  int lanes = 1;                 // of the result, or of the stored value
  int in_lanes = 1;              // of the first operand
  int lane_bytes = 0;            // in the arena; equals the size in memory except for i1
  int64_t imm = 0;
  uint32_t region = 0;  // index in Machine::regions; scratch is the last
  const int16_t* table = nullptr;
  int body = -1;
};

// Moves one carried value of a loop.
struct Carry {
  uint32_t init, param, yield, out, bytes;
};

struct Code {
  std::vector<Step> steps;
  std::vector<Carry> carries;
  uint32_t iv = 0;  // arena offset
};

// A buffer, and for written ones who touched each byte: 0 nobody, tile + 1, or kMany (readers).
struct Region {
  uint8_t* data = nullptr;
  int64_t size = 0;
  std::vector<uint32_t> writer, reader;
};

inline constexpr uint32_t kMany = ~0u;

struct Machine {
  const Kernel* kernel = nullptr;
  std::vector<Code> blocks;
  std::vector<Region> regions;
  std::vector<uint8_t> values;  // the arena
  std::vector<uint8_t> moving;  // carried values on their way from yields to parameters
  uint32_t tile = 0;
  bool first = false;
  int64_t steps_left = 0;
  std::string error;

  template <typename T>
  T* at(uint32_t offset) {
    return reinterpret_cast<T*>(values.data() + offset);
  }
  // Sets the error, prefixed with the op and the tile; returns false.
  bool Fail(const Step& step, const std::string& why);
};

// The function of an op; null when the op is of another kind.
Exec ArithmeticExecOf(const Op& op, Type first_operand);
Exec LaneExecOf(const Op& op, Type first_operand);
// The function of a load, store, gather or prefetch.
Exec MemoryExecOf(const Op& op, Type index);
// Writes the splatted constant, rounded to its type.
void WriteConst(const Op& op, uint8_t* to);

// Calls f.template operator()<T>() with the C++ type of an integer, f32 or f64.
template <typename F>
Exec WithType(Scalar s, F f) {
  switch (s) {
    case Scalar::kI1:
    case Scalar::kU8:
      return f.template operator()<uint8_t>();
    case Scalar::kS8:
      return f.template operator()<int8_t>();
    case Scalar::kS16:
      return f.template operator()<int16_t>();
    case Scalar::kU16:
      return f.template operator()<uint16_t>();
    case Scalar::kS32:
      return f.template operator()<int32_t>();
    case Scalar::kU32:
      return f.template operator()<uint32_t>();
    case Scalar::kS64:
      return f.template operator()<int64_t>();
    case Scalar::kF32:
      return f.template operator()<float>();
    case Scalar::kF64:
      return f.template operator()<double>();
    case Scalar::kF16:
    case Scalar::kBf16:
      return nullptr;  // Verify refuses arithmetic on them
  }
  return nullptr;
}

inline int LaneBytes(Scalar s) { return s == Scalar::kI1 ? 1 : ScalarBytes(s); }

}  // namespace cuvil::kernel::interp
