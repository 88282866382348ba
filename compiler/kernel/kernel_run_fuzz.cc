// The interpreter on whatever verifies: it ends with a status and stays inside its buffers.
#include <string_view>
#include <vector>

#include "compiler/kernel/interpreter.h"
#include "compiler/kernel/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cuvil::kernel;
  const absl::StatusOr<Kernel> kernel = Parse({reinterpret_cast<const char*>(data), size});
  if (!kernel.ok() || kernel->scratch_bytes > 1 << 16) return 0;
  std::vector<std::vector<uint8_t>> bytes(kernel->buffers.size());
  Launch launch{.tiles = 3, .seed = size, .steps_max = 10000};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i].resize(64 * (i + 1));
    for (size_t j = 0; j < bytes[i].size(); ++j) bytes[i][j] = static_cast<uint8_t>(j * 37 + i);
    launch.buffers.push_back(absl::MakeSpan(bytes[i]));
  }
  for (size_t i = 0; i < kernel->scalars.size(); ++i) {
    launch.scalars.push_back(3 + static_cast<int64_t>(i));
  }
  (void)Run(*kernel, launch);
  return 0;
}
