// Kernel text: whatever parses must verify and must print to text that parses to the same text.
#include <string>
#include <string_view>

#include "compiler/kernel/text.h"
#include "compiler/kernel/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cuvil::kernel;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Kernel> kernel = Parse(text);
  if (!kernel.ok()) return 0;
  CUVIL_CHECK(Verify(*kernel).ok(), "parsed text does not verify");
  const std::string printed = Print(*kernel);
  const absl::StatusOr<Kernel> again = Parse(printed);
  CUVIL_CHECK(again.ok(), absl::StrCat(again.status().message()));
  CUVIL_CHECK(Print(*again) == printed, "text does not round-trip");
  return 0;
}
