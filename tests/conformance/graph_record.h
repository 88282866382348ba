// What the oracle process tells the test about one evaluation, as a stream of records:
// the graph as text, the symbols' values, inputs and weights, and the outputs the interpreter gave.
// All tensors are dense and row-major; their shapes follow from the graph and the symbols.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace cuvil::conformance {

using Bytes = std::vector<uint8_t>;

struct GraphRecord {
  std::string name;   // of the case, for messages
  std::string graph;  // CU-IR text
  std::vector<int64_t> symbols;
  std::vector<Bytes> inputs;  // graph inputs, then weights
  std::vector<Bytes> outputs;
};

void WriteRecord(std::FILE* to, const GraphRecord& record);
// Nothing at the end of the stream, or when it is cut short.
std::optional<GraphRecord> ReadRecord(std::FILE* from);

}  // namespace cuvil::conformance
