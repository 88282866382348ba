// The oracle process of graph_property_test: evaluates graphs with the reference interpreter and
// writes records (graph_record.h) to standard output. A process of its own, so that the test binary
// holds compiled code only.
//
//   graph_oracle ops                      every handwritten case, several symbol bindings each
//   graph_oracle random <first> <count>   seeded random graphs, three bindings each
#include <charconv>
#include <cmath>
#include <cstring>
#include <random>

#include "compiler/ir/interpreter.h"
#include "compiler/ir/random_graph.h"
#include "compiler/ir/text.h"
#include "tests/conformance/graph_record.h"
#include "tests/conformance/op_graphs.h"

namespace cuvil::conformance {
namespace {

using ir::interp::Tensor;

void Fail(const std::string& what) {
  std::fprintf(stderr, "graph_oracle: %s\n", what.c_str());
  std::exit(1);
}

// "index6_i" -> 6.
std::optional<int64_t> IndexLimit(const std::string& name) {
  int64_t limit = 0;
  if (name.rfind("index", 0) != 0) return std::nullopt;
  std::from_chars(name.data() + 5, name.data() + name.size(), limit);
  return limit;
}

template <typename C>
C WildValue(std::mt19937_64& rng) {
  if constexpr (std::is_same_v<C, bool>) {
    return rng() % 2 != 0;
  } else if constexpr (std::is_floating_point_v<C>) {
    // Not past 2^50 except infinities: there sine is not promised.
    static constexpr double kEdges[] = {0,     -0.0,  1,     -1,    INFINITY, -INFINITY, NAN,
                                        1e10,  -3e9,  1e-10, 127.5, 128,      255.5,     -128.9,
                                        65520, 1e-40, 0.5,   2.5,   -0.5};
    if (rng() % 4 == 0) return static_cast<C>(kEdges[rng() % std::size(kEdges)]);
    const double range = rng() % 3 == 0 ? 200 : 3;
    return static_cast<C>((static_cast<double>(rng() >> 11) * 0x1p-52 - 1) * range);
  } else {
    if (rng() % 3 == 0) {
      static constexpr C kEdges[] = {0,
                                     1,
                                     static_cast<C>(-1),
                                     2,
                                     std::numeric_limits<C>::min(),
                                     std::numeric_limits<C>::max(),
                                     static_cast<C>(100)};
      return kEdges[rng() % std::size(kEdges)];
    }
    return rng() % 2 ? static_cast<C>(rng()) : static_cast<C>(rng() % 17);
  }
}

template <typename C>
C TameValue(std::mt19937_64& rng) {
  if constexpr (std::is_floating_point_v<C>) {
    return static_cast<C>((static_cast<double>(rng() >> 11) * 0x1p-52 - 1) * 4);
  } else {
    return WildValue<C>(rng);
  }
}

// Blocks whose scales are small normal halves and whose other bytes are anything.
void FillBlocks(Tensor& t, std::mt19937_64& rng) {
  const size_t size = Info(t.dtype).bytes;
  for (size_t at = 0; at < t.bytes.size(); at += size) {
    for (size_t i = 0; i < size; ++i) t.bytes[at + i] = static_cast<uint8_t>(rng());
    const int halves = t.dtype == DType::kQ4_1 ? 2 : 1;
    for (int h = 0; h < halves; ++h) {
      const uint16_t half = F32ToF16(static_cast<float>(rng() % 1000) * 1e-4f - 0.05f);
      std::memcpy(&t.bytes[at + 2 * h], &half, 2);
    }
  }
}

Tensor Filled(const ir::TensorType& type, const std::string& name, const ir::Bindings& symbols,
              std::mt19937_64& rng) {
  absl::StatusOr<std::vector<int64_t>> dims = ir::EvaluateAll(type.dims, symbols);
  if (!dims.ok()) Fail(std::string(dims.status().message()));
  absl::StatusOr<Tensor> made = Tensor::Zeros(type.dtype, *dims);
  if (!made.ok()) Fail(std::string(made.status().message()));
  Tensor t = *std::move(made);
  if (IsBlock(type.dtype)) {
    FillBlocks(t, rng);
    return t;
  }
  const std::optional<int64_t> limit = IndexLimit(name);
  const bool tame = name.rfind("tame", 0) == 0;
  ir::interp::WithComputeType(type.dtype, [&](auto tag) {
    using C = decltype(tag);
    for (int64_t i = 0; i < t.count(); ++i) {
      const C v = limit  ? static_cast<C>(rng() % *limit)
                  : tame ? TameValue<C>(rng)
                         : WildValue<C>(rng);
      ir::interp::StoreElement<C>(type.dtype, t.bytes.data(), i, v);
    }
  });
  return t;
}

// Evaluates and writes one record.
void Emit(const std::string& name, const ir::Graph& graph, const ir::Bindings& symbols,
          const ir::interp::Arguments& arguments) {
  GraphRecord record{.name = name, .graph = ir::Print(graph), .symbols = symbols};
  for (const ir::ValueId v : graph.inputs()) {
    record.inputs.push_back(arguments.inputs.at(graph.value(v).name).bytes);
  }
  for (const ir::ValueId v : graph.weights()) {
    const absl::Span<const uint8_t> bytes = arguments.weights.at(graph.value(v).name).bytes;
    record.inputs.emplace_back(bytes.begin(), bytes.end());
  }
  absl::StatusOr<ir::interp::Results> results = ir::interp::Evaluate(graph, arguments);
  if (!results.ok()) Fail(absl::StrCat(name, ": ", results.status().message()));
  for (const ir::Output& o : graph.outputs())
    record.outputs.push_back(results->tensors.at(o.name).bytes);
  WriteRecord(stdout, record);
}

void EmitOpCase(const OpCase& c, const ir::Bindings& symbols, uint64_t seed) {
  std::mt19937_64 rng(seed);
  ir::interp::Arguments arguments;
  std::vector<Tensor> weights;
  weights.reserve(c.graph.weights().size());
  for (size_t i = 0; i < symbols.size(); ++i)
    arguments.symbols[c.graph.symbols()[i].name] = symbols[i];
  for (const ir::ValueId v : c.graph.inputs()) {
    const std::string& name = c.graph.value(v).name;
    arguments.inputs[name] = Filled(c.graph.tensor_type(v), name, symbols, rng);
  }
  for (const ir::ValueId v : c.graph.weights()) {
    const std::string& name = c.graph.value(v).name;
    weights.push_back(Filled(c.graph.tensor_type(v), name, symbols, rng));
    arguments.weights[name] = weights.back().view();
  }
  Emit(c.name, c.graph, symbols, arguments);
}

void EmitOps() {
  // Empty, one vector and a bit, exactly one vector, the largest.
  const std::vector<ir::Bindings> bindings = {{0, 1}, {3, 37}, {16, 16}, {40, 70}};
  uint64_t seed = 1;
  for (const OpCase& c : AllOpCases()) {
    for (const ir::Bindings& symbols : bindings) EmitOpCase(c, symbols, seed++);
  }
}

void EmitRandom(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const ir::RandomGraph random = ir::MakeRandomGraph(seed, {.symbolic = seed % 8 != 0});
    for (uint64_t k = 0; k < 3; ++k) {
      const ir::Bindings symbols = ir::RandomBindings(random.graph, seed * 3 + k);
      const ir::RandomArguments a = ir::MakeRandomArguments(random, symbols, seed * 3 + k);
      Emit(absl::StrCat("seed ", seed), random.graph, symbols, a.arguments);
    }
  }
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "ops" && argc == 2) {
    EmitOps();
  } else if (mode == "random" && argc == 4) {
    EmitRandom(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  } else {
    Fail("usage: graph_oracle ops | graph_oracle random <first> <count>");
  }
  return 0;
}

}  // namespace
}  // namespace cuvil::conformance

int main(int argc, char** argv) { return cuvil::conformance::Main(argc, argv); }
