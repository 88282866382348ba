#include "tests/conformance/graph_record.h"

#include <cstring>

namespace cuvil::conformance {
namespace {

void Put(std::FILE* to, const void* data, uint64_t size) {
  std::fwrite(&size, sizeof(size), 1, to);
  if (size > 0) std::fwrite(data, 1, size, to);
}

bool Get(std::FILE* from, Bytes* data) {
  // Test tensors are small; more means a broken stream.
  constexpr uint64_t kSizeMax = uint64_t{1} << 30;
  uint64_t size = 0;
  if (std::fread(&size, sizeof(size), 1, from) != 1 || size > kSizeMax) return false;
  data->resize(size);
  return std::fread(data->data(), 1, size, from) == size;
}

void PutList(std::FILE* to, const std::vector<Bytes>& list) {
  const uint64_t count = list.size();
  Put(to, &count, sizeof(count));
  for (const Bytes& b : list) Put(to, b.data(), b.size());
}

bool GetList(std::FILE* from, std::vector<Bytes>* list) {
  Bytes count;
  if (!Get(from, &count) || count.size() != sizeof(uint64_t)) return false;
  uint64_t n = 0;
  std::memcpy(&n, count.data(), sizeof(n));
  for (uint64_t i = 0; i < n; ++i) {
    list->emplace_back();
    if (!Get(from, &list->back())) return false;
  }
  return true;
}

}  // namespace

void WriteRecord(std::FILE* to, const GraphRecord& record) {
  Put(to, record.name.data(), record.name.size());
  Put(to, record.graph.data(), record.graph.size());
  Put(to, record.symbols.data(), record.symbols.size() * sizeof(int64_t));
  PutList(to, record.inputs);
  PutList(to, record.outputs);
}

std::optional<GraphRecord> ReadRecord(std::FILE* from) {
  GraphRecord record;
  Bytes name, graph, symbols;
  if (!Get(from, &name) || !Get(from, &graph) || !Get(from, &symbols)) return std::nullopt;
  record.name.assign(name.begin(), name.end());
  record.graph.assign(graph.begin(), graph.end());
  record.symbols.resize(symbols.size() / sizeof(int64_t));
  if (!symbols.empty()) std::memcpy(record.symbols.data(), symbols.data(), symbols.size());
  if (!GetList(from, &record.inputs) || !GetList(from, &record.outputs)) return std::nullopt;
  return record;
}

}  // namespace cuvil::conformance
