// Compiled graphs against the reference interpreter, on every target this machine runs: handwritten
// cases for every op and dtype, then seeded random graphs. The interpreter runs in another process
// (graph_oracle), so what is tested here cannot borrow from it.
//
// CUVIL_PROPERTY_SECONDS: keep trying new seeds for so long (CI: a fixed number of seeds).
// CUVIL_PROPERTY_SEED: the first seed.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>

#include "absl/strings/str_join.h"
#include "base/cpu.h"
#include "base/half.h"
#include "compiler/ir/text.h"
#include "gtest/gtest.h"
#include "tests/conformance/compiled_runner.h"

namespace cuvil::conformance {
namespace {

// Seeds of a CI run: about 40 s on a slow core, most of it in LLVM.
constexpr int64_t kSeeds = 60;

// |got - want| <= relative * |want| + absolute.
struct Tolerance {
  double relative, absolute;
};

// One op: both sides round an almost exact result, but libm, the interpreter's float arithmetic and
// our polynomials each may be some ulp off (f32: 2^-23 = 1.2e-7), and GELU in float cancels. f16
// and bf16 results may fall on either side of a rounding boundary: one ulp, 2^-10 and 2^-7. Random
// graphs feed such differences through two dozen ops of slopes up to a few.
Tolerance ToleranceOf(DType d, bool chain) {
  switch (d) {
    case DType::kF64:
      return {1e-11, 1e-12};
    case DType::kF32:
      return chain ? Tolerance{1e-4, 2e-5} : Tolerance{2e-6, 1e-6};
    case DType::kF16:
      return chain ? Tolerance{2e-2, 1e-2} : Tolerance{1e-3, 1e-6};
    case DType::kBf16:
      return chain ? Tolerance{1e-1, 5e-2} : Tolerance{8e-3, 1e-6};
    default:
      return {0, 0};
  }
}

double Element(DType d, const Bytes& bytes, size_t i) {
  const auto as = [&]<typename T>(T) {
    T v;
    std::memcpy(&v, &bytes[i * sizeof(T)], sizeof(T));
    return v;
  };
  switch (d) {
    case DType::kF64:
      return as(double{});
    case DType::kF32:
      return as(float{});
    case DType::kF16:
      return F16ToF32(as(uint16_t{}));
    default:
      return Bf16ToF32(as(uint16_t{}));
  }
}

bool Close(double got, double want, Tolerance t, double highest) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) {
    // Past overflow on one side only is still next door.
    return got == want ||
           ((got > 0) == (want > 0) && std::min(std::fabs(got), std::fabs(want)) >= 0.99 * highest);
  }
  return std::fabs(got - want) <= t.relative * std::fabs(want) + t.absolute;
}

double Highest(DType d) {
  return d == DType::kF64 ? 1.797e308 : d == DType::kF16 ? 65504 : 3.38e38;
}

// Empty, or what is wrong with the first bad element.
std::string Difference(DType d, const Bytes& got, const Bytes& want, bool chain) {
  if (got.size() != want.size()) return absl::StrCat(got.size(), " bytes, want ", want.size());
  if (!Info(d).is_float) {  // integers and booleans are exact
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != want[i]) {
        const size_t size = Info(d).bytes, first = i / size * size;
        int64_t a = 0, b = 0;
        std::memcpy(&a, &got[first], size);
        std::memcpy(&b, &want[first], size);
        return absl::StrFormat("element %d is %#x, want %#x", first / size, a, b);
      }
    }
    return "";
  }
  for (size_t i = 0; i < got.size() / Info(d).bytes; ++i) {
    const double a = Element(d, got, i), b = Element(d, want, i);
    if (!Close(a, b, ToleranceOf(d, chain), Highest(d))) {
      return absl::StrFormat("element %d is %.9g, want %.9g", i, a, b);
    }
  }
  return "";
}

std::vector<emit::Target> TargetsHere() {
  std::vector<emit::Target> here;
  for (const emit::Target& t : emit::AllTargets()) {
    // avx512 without vnni differs only in integer dot products, which lowering does not use.
    if (t.name != "cpu:avx512" && emit::Runs(t, AcquireCpuFeatures())) here.push_back(t);
  }
  return here;
}

// The oracle process, as a stream of records.
class Oracle {
 public:
  explicit Oracle(std::vector<std::string> arguments) {
    char self[PATH_MAX] = {};
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    std::string path(self, n > 0 ? n : 0);
    path = path.substr(0, path.rfind('/')) + "/graph_oracle";
    arguments.insert(arguments.begin(), path);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (posix_spawn(&process_, path.c_str(), &actions, nullptr, argv.data(), environ) != 0)
      process_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    stream_ = fdopen(ends[0], "rb");
  }
  // Stopping early ends the oracle with SIGPIPE, which is fine.
  ~Oracle() { Succeeded(); }
  std::optional<GraphRecord> Next() {
    return stream_ == nullptr ? std::nullopt : ReadRecord(stream_);
  }
  // After the last record: whether the oracle finished without an error.
  bool Succeeded() {
    if (stream_ != nullptr) std::fclose(stream_);
    stream_ = nullptr;
    int status = -1;
    if (process_ > 0) waitpid(process_, &status, 0);
    process_ = -1;
    return status == 0;
  }

 private:
  pid_t process_ = -1;
  std::FILE* stream_ = nullptr;
};

// Compiles each new graph once per target and compares every record with it.
class Comparison {
 public:
  explicit Comparison(bool chain) : chain_(chain), targets_(TargetsHere()) {}

  void Check(const GraphRecord& record) {
    if (record.graph != text_) Compile(record);
    for (size_t t = 0; t < compiled_.size(); ++t) {
      const std::string where = absl::StrCat(record.name, " on ", targets_[t].name,
                                             " with symbols ", absl::StrJoin(record.symbols, ", "));
      const auto got = compiled_[t].Run(record.symbols, record.inputs, record.symbols.size() + t);
      if (!got.ok()) {
        ADD_FAILURE() << where << ": " << got.status();
        continue;
      }
      for (size_t i = 0; i < got->size(); ++i) {
        const ir::Output& output = graph_->outputs()[i];
        const DType d = graph_->tensor_type(output.value).dtype;
        const std::string difference = Difference(d, (*got)[i], record.outputs[i], chain_);
        if (!difference.empty()) {
          ADD_FAILURE() << where << ": output " << output.name << " (" << Describe(output.value)
                        << ") " << difference;
        }
      }
    }
  }

  int64_t graphs() const { return graphs_; }
  int64_t kernels() const { return kernels_; }
  size_t targets() const { return targets_.size(); }

 private:
  void Compile(const GraphRecord& record) {
    text_ = record.graph;
    compiled_.clear();
    absl::StatusOr<ir::Graph> graph = ir::Parse(record.graph);
    ASSERT_TRUE(graph.ok()) << record.name << ": " << graph.status();
    graph_ = *std::move(graph);
    ++graphs_;
    for (const emit::Target& target : targets_) {
      auto compiled = CompiledGraph::Compile(*graph_, target);
      ASSERT_TRUE(compiled.ok()) << record.name << " on " << target.name << ": "
                                 << compiled.status();
      kernels_ += static_cast<int64_t>(compiled->lowered().kernels.size());
      compiled_.push_back(*std::move(compiled));
    }
  }

  std::string Describe(ir::ValueId v) const {
    const ir::Node* node = graph_->DefiningNode(v);
    std::string text = ir::ToString(graph_->type(v), graph_->symbols());
    if (node == nullptr) return text;
    return absl::StrCat(Sv(ir::NameOf(node->op)), " of ",
                        node->inputs.empty()
                            ? "nothing"
                            : ir::ToString(graph_->type(node->inputs[0]), graph_->symbols()),
                        " -> ", text);
  }

  const bool chain_;
  const std::vector<emit::Target> targets_;
  std::string text_;
  std::optional<ir::Graph> graph_;
  std::vector<CompiledGraph> compiled_;
  int64_t graphs_ = 0, kernels_ = 0;
};

double Seconds(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtod(text, nullptr);
}

template <typename T>
Bytes BytesOf(T v) {
  Bytes b(sizeof(v));
  std::memcpy(b.data(), &v, sizeof(v));
  return b;
}

TEST(GraphProperty, ComparisonSeesDifferences) {
  const auto differs = [](DType d, auto got, auto want) {
    return !Difference(d, BytesOf(got), BytesOf(want), false).empty();
  };
  EXPECT_FALSE(differs(DType::kF32, 1.0f, 1.0000001f));
  EXPECT_TRUE(differs(DType::kF32, 1.0f, 1.00001f));
  EXPECT_TRUE(differs(DType::kF32, NAN, 1.0f));
  EXPECT_TRUE(differs(DType::kF32, 1.0f, NAN));
  EXPECT_FALSE(differs(DType::kF32, NAN, NAN));
  EXPECT_TRUE(differs(DType::kF32, INFINITY, -INFINITY));
  EXPECT_TRUE(differs(DType::kF32, INFINITY, 1.0f));
  EXPECT_TRUE(differs(DType::kF64, 1.0, 1.0 + 1e-10));
  EXPECT_TRUE(differs(DType::kF16, F32ToF16(1.0f), F32ToF16(1.01f)));
  EXPECT_TRUE(differs(DType::kI32, 1, 2));
  EXPECT_TRUE(differs(DType::kBool, uint8_t{1}, uint8_t{0}));
}

TEST(GraphProperty, EveryOpAndTypeMatchesTheInterpreter) {
  Comparison comparison(/*chain=*/false);
  ASSERT_GT(comparison.targets(), 0u) << "this machine runs none of the targets";
  Oracle oracle({"ops"});
  while (const std::optional<GraphRecord> record = oracle.Next()) comparison.Check(*record);
  EXPECT_TRUE(oracle.Succeeded());
  EXPECT_GE(comparison.graphs(), 80);
  std::printf("%ld graphs, %ld kernels, %zu targets\n", comparison.graphs(), comparison.kernels(),
              comparison.targets());
}

TEST(GraphProperty, RandomGraphsMatchTheInterpreter) {
  Comparison comparison(/*chain=*/true);
  const double limit = Seconds("CUVIL_PROPERTY_SECONDS");
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const int64_t first = static_cast<int64_t>(Seconds("CUVIL_PROPERTY_SEED"));
  const int64_t count = limit > 0 ? int64_t{1} << 40 : kSeeds;
  Oracle oracle({"random", absl::StrCat(first), absl::StrCat(count)});
  while (const std::optional<GraphRecord> record = oracle.Next()) {
    comparison.Check(*record);
    if ((limit > 0 && elapsed() > limit) || HasFatalFailure()) break;
  }
  if (limit <= 0) {
    EXPECT_TRUE(oracle.Succeeded());
    EXPECT_EQ(comparison.graphs(), kSeeds);
  }
  std::printf("seeds %ld..%ld, %ld kernels, %zu targets, %.1f s\n", first,
              first + comparison.graphs() - 1, comparison.kernels(), comparison.targets(),
              elapsed());
}

}  // namespace
}  // namespace cuvil::conformance
