// Parses hostile text. What parses must verify without crashing, and print to text that parses to
// the same text again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = cuvil::ir::ParseUnverified(text);
  if (!graph.ok()) return 0;
  const std::string printed = cuvil::ir::Print(*graph);
  if (!cuvil::ir::Verify(*graph).ok()) return 0;
  const auto again = cuvil::ir::Parse(printed);
  CUVIL_CHECK(again.ok(), again.status().ToString());
  CUVIL_CHECK(cuvil::ir::Print(*again) == printed, "text does not round-trip");
  cuvil::ir::PrintCanonical(*graph);
  return 0;
}
