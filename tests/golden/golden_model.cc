#include "tests/golden/golden_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/file.h"

namespace cuvil::golden {
namespace {

constexpr size_t kGoldenBytesMax = 16 << 20;

void AppendRows(engine::Engine& engine, int64_t first, int64_t count, Logits& out) {
  for (int64_t i = first; i < first + count; ++i) {
    const auto row = engine.logits(i);
    out.emplace_back(row.begin(), row.end());
  }
}

void MustStep(engine::Engine& engine, absl::Span<const engine::Chunk> chunks) {
  const absl::Status status = engine.Step(chunks);
  CUVIL_CHECK(status.ok(), status.message());
}

engine::SequenceId MustStart(engine::Engine& engine) {
  const auto id = engine.NewSequence();
  CUVIL_CHECK(id.ok(), id.status().message());
  return *id;
}

}  // namespace

std::string SourceDir() {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  return root == nullptr ? "." : root;
}

std::vector<Json> ReadJsonLines(const std::string& path) {
  const auto text = ReadFile(path, kGoldenBytesMax);
  CUVIL_CHECK(text.ok(), text.status().message());
  std::vector<Json> lines;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const auto line = ParseJson(std::string_view(*text).substr(at, end - at));
    CUVIL_CHECK(line.ok(), line.status().message());
    lines.push_back(*line);
    at = end + 1;
  }
  return lines;
}

std::shared_ptr<const engine::Model> MustLoad(const std::string& path, plan::Numerics numerics,
                                              const std::string& target, int threads) {
  auto model =
      engine::Model::Load(path, {.numerics = numerics, .target = target, .threads = threads});
  CUVIL_CHECK(model.ok(), absl::StrCat(path, ": ", model.status().message()));
  return *std::move(model);
}

std::unique_ptr<engine::Engine> MustCreate(std::shared_ptr<const engine::Model> model,
                                           const engine::EngineOptions& options) {
  auto made = engine::Engine::Create(std::move(model), options);
  CUVIL_CHECK(made.ok(), made.status().message());
  return *std::move(made);
}

Logits Evaluate(engine::Engine& engine, absl::Span<const int32_t> tokens, int64_t piece) {
  const engine::SequenceId id = MustStart(engine);
  Logits out;
  for (size_t at = 0; at < tokens.size(); at += piece) {
    const engine::Chunk chunk{id, tokens.subspan(at, piece), engine::Want::kAll};
    MustStep(engine, {&chunk, 1});
    AppendRows(engine, 0, engine.logit_rows(), out);
  }
  engine.Free(id);
  return out;
}

Logits EvaluateBeside(engine::Engine& engine, absl::Span<const int32_t> tokens,
                      const std::vector<std::vector<int32_t>>& others, size_t place) {
  std::vector<engine::Chunk> chunks;
  for (const auto& other : others)
    chunks.push_back({MustStart(engine), other, engine::Want::kLast});
  chunks.insert(chunks.begin() + place, {MustStart(engine), tokens, engine::Want::kAll});
  MustStep(engine, chunks);
  Logits out;
  AppendRows(engine, static_cast<int64_t>(place), static_cast<int64_t>(tokens.size()), out);
  for (const engine::Chunk& c : chunks) engine.Free(c.sequence);
  return out;
}

Logits EvaluateBatched(engine::Engine& engine, absl::Span<const int32_t> tokens,
                       const std::vector<std::vector<int32_t>>& others) {
  const engine::SequenceId id = MustStart(engine);
  std::vector<engine::SequenceId> ids;
  for (size_t i = 0; i < others.size(); ++i) ids.push_back(MustStart(engine));
  Logits out;
  for (size_t at = 0; at < tokens.size(); ++at) {
    std::vector<engine::Chunk> chunks;
    for (size_t i = 0; i < others.size(); ++i) {
      if (at < others[i].size())
        chunks.push_back({ids[i], {&others[i][at], 1}, engine::Want::kNone});
    }
    chunks.insert(chunks.begin() + chunks.size() / 2,
                  {id, tokens.subspan(at, 1), engine::Want::kLast});
    MustStep(engine, chunks);
    AppendRows(engine, 0, 1, out);
  }
  engine.Free(id);
  for (const engine::SequenceId other : ids) engine.Free(other);
  return out;
}

std::string FirstDifference(const Logits& want, const Logits& got) {
  if (want.size() != got.size()) return absl::StrCat(got.size(), " rows instead of ", want.size());
  for (size_t r = 0; r < want.size(); ++r) {
    for (size_t i = 0; i < want[r].size(); ++i) {
      if (std::bit_cast<uint32_t>(want[r][i]) == std::bit_cast<uint32_t>(got[r][i])) continue;
      return absl::StrFormat("position %d token %d: %.9g instead of %.9g", r, i, got[r][i],
                             want[r][i]);
    }
  }
  return "";
}

int32_t ArgMax(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double LogSumExp(absl::Span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum);
}

}  // namespace cuvil::golden
