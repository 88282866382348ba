// Sequences that share the steps of another one, to show that sharing changes nothing (or how
// much). Random tokens from fixed seeds; one owner thread.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace cuvil::cli {

class Companions {
 public:
  // Lengths a companion may reach before it starts over: enough to fill pages unevenly.
  static constexpr int64_t kTokensMax = 512;

  // `rows`: how many rows of a step are theirs in total; at least `count`.
  static absl::StatusOr<Companions> Create(engine::Engine& engine, int64_t count, int64_t rows);

  // Runs one step of `chunk` with the companions, half of them before it. *first_row becomes the
  // row of the chunk's first wanted logits.
  absl::Status Step(const engine::Chunk& chunk, int64_t* first_row);

 private:
  explicit Companions(engine::Engine& engine) : engine_(&engine) {}
  engine::Engine* engine_;
  std::vector<engine::SequenceId> sequences_;
  std::vector<std::vector<int32_t>> tokens_;  // of this step, one list a companion
  int64_t length_max_ = 0, tokens_max_ = 0;
  std::mt19937_64 random_{20240607};
};

}  // namespace cuvil::cli
