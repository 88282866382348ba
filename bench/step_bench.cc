// step_bench: how long one step of a model takes, by what is in it: sequences that decode, rows of
// a prompt, and how far into its context that is. With --launches also where the time went.
//
//   step_bench MODEL.gguf [--threads N] [--launches] DECODES:ROWS:CONTEXT...
//
// Each shape runs kRepeats times; the median counts. Decoding sequences have 64 tokens of context.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/engine.h"

namespace cuvil::bench {
namespace {

constexpr int kRepeats = 15;
constexpr int64_t kDecodeContext = 64;

struct Shape {
  int64_t decodes = 0, rows = 0, context = 0;
};

bool Parse(const std::string& text, Shape* shape) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  return parts.size() == 3 && absl::SimpleAtoi(parts[0], &shape->decodes) &&
         absl::SimpleAtoi(parts[1], &shape->rows) && absl::SimpleAtoi(parts[2], &shape->context) &&
         shape->decodes >= 0 && shape->rows >= 0 && shape->decodes + shape->rows > 0;
}

// "blk.7 attention" and "blk.7.ffn_up.weight" are the same thing in every layer.
std::string WithoutLayer(const std::string& label) {
  if (!label.starts_with("blk.")) return label;
  const size_t end = label.find_first_of(". ", 4);
  return end == std::string::npos ? label : label.substr(end + 1);
}

class StepBench {
 public:
  StepBench(engine::Engine& engine, bool launches) : engine_(engine), launches_(launches) {}

  absl::Status Run(const Shape& shape) {
    std::vector<engine::SequenceId> ids;
    for (int64_t i = 0; i < shape.decodes; ++i) {
      ASSIGN_OR_RETURN(ids.emplace_back(), engine_.NewSequence());
      RETURN_IF_ERROR(engine_.Prefill(ids.back(), Random(kDecodeContext)));
    }
    ASSIGN_OR_RETURN(const engine::SequenceId prompt, engine_.NewSequence());
    if (shape.rows > 0 && shape.context > 0)
      RETURN_IF_ERROR(engine_.Prefill(prompt, Random(shape.context)));
    std::vector<double> totals;
    std::map<std::string, std::vector<double>> parts;
    for (int i = 0; i < kRepeats; ++i) {
      const std::vector<int32_t> tokens = Random(shape.decodes + shape.rows);
      std::vector<engine::Chunk> chunks;
      for (int64_t k = 0; k < shape.decodes; ++k)
        chunks.push_back({ids[k], {&tokens[k], 1}, engine::Want::kLast});
      if (shape.rows > 0) {
        chunks.push_back({prompt,
                          {tokens.data() + shape.decodes, static_cast<size_t>(shape.rows)},
                          engine::Want::kNone});
      }
      std::vector<engine::LaunchTime> times;
      const int64_t start = runtime::MonotonicNs();
      RETURN_IF_ERROR(engine_.StepTimed(chunks, &times));
      totals.push_back(static_cast<double>(runtime::MonotonicNs() - start) * 1e-6);
      std::map<std::string, double> sums;
      for (const engine::LaunchTime& t : times)
        sums[WithoutLayer(t.label)] += static_cast<double>(t.ns) * 1e-6;
      for (const auto& [label, ms] : sums) parts[label].push_back(ms);
      engine_.Truncate(prompt, shape.rows > 0 ? shape.context : 0);
      for (const engine::SequenceId id : ids) engine_.Truncate(id, kDecodeContext);
    }
    std::printf("%8d %6d %8d %10.2f\n", static_cast<int>(shape.decodes),
                static_cast<int>(shape.rows), static_cast<int>(shape.context), Median(totals));
    for (const auto& [label, ms] : parts) {
      if (launches_ && Median(ms) > 0) std::printf("%24s %10.2f\n", label.c_str(), Median(ms));
    }
    for (const engine::SequenceId id : ids) engine_.Free(id);
    engine_.Free(prompt);
    return absl::OkStatus();
  }

 private:
  static double Median(std::vector<double> v) {
    std::ranges::sort(v);
    return v[v.size() / 2];
  }
  std::vector<int32_t> Random(int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& t : tokens)
      t = static_cast<int32_t>(random_() % static_cast<uint64_t>(engine_.vocab_size()));
    return tokens;
  }

  engine::Engine& engine_;
  const bool launches_;
  std::mt19937_64 random_;
};

absl::Status Main(const std::vector<std::string>& args) {
  std::vector<Shape> shapes;
  int threads = 0;
  bool launches = false;
  for (size_t i = 1; i < args.size(); ++i) {
    Shape shape;
    if (args[i] == "--launches") {
      launches = true;
    } else if (args[i] == "--threads" && i + 1 < args.size() &&
               absl::SimpleAtoi(args[i + 1], &threads)) {
      ++i;
    } else if (Parse(args[i], &shape)) {
      shapes.push_back(shape);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", args[i], "' is no shape; write DECODES:ROWS:CONTEXT, such as 7:16:1984"));
    }
  }
  if (shapes.empty()) return absl::InvalidArgumentError("name at least one DECODES:ROWS:CONTEXT");
  ASSIGN_OR_RETURN(const auto model, engine::Model::Load(args[0], {.threads = threads}));
  ASSIGN_OR_RETURN(
      const auto engine,
      engine::Engine::Create(model, {.kv_tokens = 2 * model->config().context_length}));
  StepBench bench(*engine, launches);
  std::printf("%8s %6s %8s %10s\n", "decodes", "rows", "context", "ms");
  for (const Shape& shape : shapes) RETURN_IF_ERROR(bench.Run(shape));
  return absl::OkStatus();
}

}  // namespace
}  // namespace cuvil::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr,
        "usage: step_bench MODEL.gguf [--threads N] [--launches] DECODES:ROWS:CONTEXT...\n");
    return 2;
  }
  const absl::Status status = cuvil::bench::Main({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "step_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
