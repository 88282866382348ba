// One launch of a kernel with its data, run by the kernel interpreter and as machine code: both
// must leave the same bytes. The interpreter checks bounds and races; the machine code runs between
// guard bytes, on two simulated workers with poisoned scratch, tiles in shuffled order.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/target.h"
#include "compiler/kernel/kir.h"
#include "compiler/kernel/template_linear.h"
#include "runtime/layout.h"

namespace cuvil::conformance {

using Bytes = std::vector<uint8_t>;

// The targets this machine runs, best first.
std::vector<emit::Target> TargetsHere();
inline kernel::Machine MachineOf(const emit::Target& t) { return {t.lanes, t.registers}; }

kernel::Kernel Verified(kernel::Kernel kernel);  // stops the test process when it does not verify

class CompiledKernel {
 public:
  CompiledKernel(kernel::Kernel kernel, const emit::Target& target);

  // Runs the launch as machine code on `buffers`, in place. Returns what is wrong, or "": writes
  // outside a buffer or into one that is only read.
  std::string Execute(std::vector<Bytes>& buffers, const std::vector<int64_t>& scalars,
                      int64_t tiles, uint64_t seed) const;

  // Execute, and the interpreter on the same bytes: "" when both leave the same. `buffers` then
  // hold the result.
  std::string Compare(std::vector<Bytes>& buffers, const std::vector<int64_t>& scalars,
                      int64_t tiles, uint64_t seed) const;

  const kernel::Kernel& kernel() const { return kernel_; }

 private:
  kernel::Kernel kernel_;
  std::string error_;
  std::shared_ptr<const emit::CodeImage> image_;
};

// ---- Data ----

// Values around 1 with some exact zeros, subnormals and large ones; every finite bit pattern that
// sums and squares of a short row can take.
Bytes RandomFloats(std::mt19937_64& random, int64_t count, double scale = 1);

// A packed matrix of rows/16 strips: every byte pattern for quants, small finite scales.
Bytes RandomStrips(std::mt19937_64& random, WeightLayout layout, int64_t rows, int64_t k);

// `rows` records of k values that fit the format: what EmitActRecord could have written.
Bytes RandomRecords(std::mt19937_64& random, ActFormat format, int64_t rows, int64_t k);

Bytes BytesOf(const std::vector<int64_t>& values);
Bytes BytesOf(const std::vector<int32_t>& values);

}  // namespace cuvil::conformance
