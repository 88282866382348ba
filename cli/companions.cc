#include "cli/companions.h"

#include <algorithm>

namespace cuvil::cli {

absl::StatusOr<Companions> Companions::Create(engine::Engine& engine, int64_t count, int64_t rows) {
  Companions c(engine);
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const engine::SequenceId id, engine.NewSequence());
    c.sequences_.push_back(id);
  }
  c.tokens_.resize(count);
  c.length_max_ = std::min(kTokensMax, engine.context());
  // Uneven shares, and no more than a chunk of a busy server's prefill.
  constexpr int64_t kTokensOfOne = 16;
  c.tokens_max_ = count == 0 ? 0 : std::clamp<int64_t>(rows / count, 1, kTokensOfOne);
  return c;
}

absl::Status Companions::Step(const engine::Chunk& chunk, int64_t* first_row) {
  std::vector<engine::Chunk> chunks;
  const size_t before = sequences_.size() / 2;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (i == before) chunks.push_back(chunk);
    const int64_t count = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(tokens_max_));
    if (engine_->length(sequences_[i]) + count > length_max_) engine_->Truncate(sequences_[i], 0);
    tokens_[i].clear();
    for (int64_t t = 0; t < count; ++t) {
      tokens_[i].push_back(
          static_cast<int32_t>(random_() % static_cast<uint64_t>(engine_->vocab_size())));
    }
    chunks.push_back({sequences_[i], tokens_[i], engine::Want::kLast});
  }
  if (sequences_.empty()) chunks.push_back(chunk);
  *first_row = static_cast<int64_t>(before);
  return engine_->Step(chunks);
}

}  // namespace cuvil::cli
