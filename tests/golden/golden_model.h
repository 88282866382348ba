// What the golden tests of whole models share: where files lie, loading, and logits however they
// are asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"

namespace cuvil::golden {

// One row per position, vocab_size values each.
using Logits = std::vector<std::vector<float>>;

std::string SourceDir();
std::vector<Json> ReadJsonLines(const std::string& path);

// Stop the test with the error's sentence.
std::shared_ptr<const engine::Model> MustLoad(const std::string& path, plan::Numerics numerics,
                                              const std::string& target, int threads);
std::unique_ptr<engine::Engine> MustCreate(std::shared_ptr<const engine::Model> model,
                                           const engine::EngineOptions& options = {});

// Steps `tokens` from position 0 in a sequence of its own, `piece` rows a step, and returns the
// logits of every position.
Logits Evaluate(engine::Engine& engine, absl::Span<const int32_t> tokens, int64_t piece);

// The same in one step together with `others`, this one standing at `place` among them.
Logits EvaluateBeside(engine::Engine& engine, absl::Span<const int32_t> tokens,
                      const std::vector<std::vector<int32_t>>& others, size_t place);

// Token by token, every step shared with one token of each of the others.
Logits EvaluateBatched(engine::Engine& engine, absl::Span<const int32_t> tokens,
                       const std::vector<std::vector<int32_t>>& others);

// "" when every bit is the same, else the first difference.
std::string FirstDifference(const Logits& want, const Logits& got);

int32_t ArgMax(absl::Span<const float> logits);
double LogSumExp(absl::Span<const float> logits);

}  // namespace cuvil::golden
