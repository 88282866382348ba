// The program's side of inspect.h: finds the disassembler in the module, and prints reports.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "compiler/emit/inspect/inspect.h"
#include "compiler/emit/module/module.h"

namespace cuvil::emit {

absl::StatusOr<ObjectReport> Inspect(absl::Span<const uint8_t> elf_object,
                                     std::string_view symbol) {
  ASSIGN_OR_RETURN(const void* const inspector, ModuleObject(kInspector));
  return static_cast<const Inspector*>(inspector)->inspect(elf_object, symbol);
}

std::string Summary(const ObjectReport& report) {
  std::string out =
      absl::StrFormat("%s: %d bytes, %d instructions, %d calls, %d stack accesses\n", report.symbol,
                      report.code_bytes, report.instructions, report.calls, report.stack.total());
  for (const LoopReport& loop : report.loops) {
    absl::StrAppend(&out, absl::StrFormat("  loop %x-%x: %d instructions", loop.begin, loop.end,
                                          loop.instructions));
    absl::StrAppend(
        &out, absl::StrFormat(", spills: %d loads, %d stores, %d vector loads, %d vector stores",
                              loop.stack.loads, loop.stack.stores, loop.stack.vector_loads,
                              loop.stack.vector_stores));
    std::vector<std::pair<int, std::string>> top;
    for (const auto& [name, count] : loop.mnemonics) top.push_back({-count, name});
    std::sort(top.begin(), top.end());
    for (size_t i = 0; i < top.size() && i < 8; ++i) {
      absl::StrAppend(&out, i == 0 ? "; " : ", ", top[i].second, " ", -top[i].first);
    }
    out += "\n";
  }
  return out;
}

}  // namespace cuvil::emit
