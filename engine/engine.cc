#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace cuvil::engine {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                                       const EngineOptions& options) {
  const int64_t context = model->config().context_length;
  const int64_t tokens = options.kv_tokens > 0 ? options.kv_tokens : context;
  // A page of slack per sequence: each may leave its last page partly empty.
  const int64_t pages =
      CeilDiv<int64_t>(tokens, model->program().states[0].page_tokens) + options.sequences_max;
  RETURN_IF_ERROR(CheckTrim(options.trim, *model));
  std::unique_ptr<Engine> engine(new Engine());
  engine->trim_ = options.trim;
  ASSIGN_OR_RETURN(engine->runner_,
                   StepRunner::Create(std::move(model), {.pages = pages,
                                                         .sequences_max = options.sequences_max,
                                                         .pin = options.pin}));
  for (int64_t i = pages - 1; i >= 0; --i) engine->free_pages_.push_back(static_cast<int32_t>(i));
  engine->sequences_.resize(options.sequences_max);
  return engine;
}

absl::StatusOr<SequenceId> Engine::NewSequence() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].live) continue;
    sequences_[i].live = true;
    return SequenceId{static_cast<int32_t>(i)};
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("all ", sequences_.size(), " sequences are in use; free one first"));
}

void Engine::Free(SequenceId id) {
  Truncate(id, 0);
  sequences_[id.value].live = false;
}

int64_t Engine::length(SequenceId id) const { return sequences_[id.value].length; }

void Engine::Truncate(SequenceId id, int64_t length) {
  Sequence& s = sequences_[id.value];
  CUVIL_CHECK(s.live && length >= 0 && length <= s.length, "truncation within the sequence");
  s.length = length;
  const size_t keep = CeilDiv<int64_t>(length, page_tokens());
  while (s.pages.size() > keep) {
    if (s.pages.back() >= 0) free_pages_.push_back(s.pages.back());
    s.pages.pop_back();
  }
}

void Engine::Check(absl::Span<const Chunk> chunks) const {
  std::vector<bool> seen(sequences_.size());
  for (const Chunk& c : chunks) {
    CUVIL_CHECK(c.sequence.value >= 0 && c.sequence.value < static_cast<int>(sequences_.size()) &&
                    sequences_[c.sequence.value].live,
                "steps take live sequences");
    CUVIL_CHECK(!seen[c.sequence.value], "a sequence has one chunk a step");
    seen[c.sequence.value] = true;
  }
}

absl::Status Engine::ReservePages(absl::Span<const Chunk> chunks) {
  int64_t needed = 0;
  for (const Chunk& c : chunks) {
    const Sequence& s = sequences_[c.sequence.value];
    needed += CeilDiv<int64_t>(s.length + static_cast<int64_t>(c.tokens.size()), page_tokens()) -
              static_cast<int64_t>(s.pages.size());
  }
  if (needed > free_pages()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the step needs ", needed, " pages of keys and values and ", free_pages(),
                     " are free; end a sequence or raise the pool"));
  }
  for (const Chunk& c : chunks) {
    Sequence& s = sequences_[c.sequence.value];
    const size_t want =
        CeilDiv<int64_t>(s.length + static_cast<int64_t>(c.tokens.size()), page_tokens());
    while (s.pages.size() < want) {
      s.pages.push_back(free_pages_.back());
      free_pages_.pop_back();
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::RunStep(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times) {
  Check(chunks);
  rows_.clear();
  for (const Chunk& c : chunks)
    rows_.push_back({.tokens = c.tokens, .begin = length(c.sequence), .want = c.want});
  if (trim_.enabled()) {
    for (StepRows& r : rows_) {
      r.window = trim_.window();
      r.sinks = trim_.sinks;
    }
  }
  int64_t rows, outs;
  RETURN_IF_ERROR(runner_->Check(rows_, &rows, &outs));
  RETURN_IF_ERROR(ReservePages(chunks));
  for (size_t i = 0; i < chunks.size(); ++i)
    rows_[i].pages = sequences_[chunks[i].sequence.value].pages;
  RETURN_IF_ERROR(runner_->Step(rows_, false, times));
  pages_peak_ = std::max(pages_peak_, pages() - free_pages());
  for (const Chunk& c : chunks) {
    Sequence& s = sequences_[c.sequence.value];
    s.length += static_cast<int64_t>(c.tokens.size());
    if (trim_.enabled()) Trim(s);
  }
  return absl::OkStatus();
}

void Engine::Trim(Sequence& s) {
  for (size_t page = 0; page < s.pages.size(); ++page) {
    if (s.pages[page] < 0) continue;
    if (!trim_.PageIsDead(static_cast<int64_t>(page), page_tokens(), s.length)) continue;
    free_pages_.push_back(s.pages[page]);
    s.pages[page] = -1;
  }
}

absl::Status CheckTrim(const kvcache::TrimPolicy& policy, const Model& model) {
  return CheckTrim(policy, model.config(), model.program().states[0].page_tokens);
}

absl::Status CheckTrim(const kvcache::TrimPolicy& policy, const gguf::ModelConfig& config,
                       int64_t page_tokens) {
  if (!policy.enabled()) return absl::OkStatus();
  RETURN_IF_ERROR(kvcache::Validate(policy, page_tokens));
  const int64_t own = config.sliding_window;
  if (own == 0 || policy.window() >= own) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("max_kv_len leaves a window of ", policy.window(),
                                                 " positions and the model's own layers look back ",
                                                 own, "; raise max_kv_len to at least ",
                                                 own + policy.sinks));
}

absl::Status Engine::Step(absl::Span<const Chunk> chunks) { return RunStep(chunks, nullptr); }

absl::Status Engine::StepTimed(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times) {
  return RunStep(chunks, times);
}

absl::Status Engine::Prefill(SequenceId sequence, absl::Span<const int32_t> tokens, int64_t chunk) {
  const int64_t step = chunk > 0 ? std::min(chunk, rows_max()) : rows_max();
  if (length(sequence) + static_cast<int64_t>(tokens.size()) > context()) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", tokens.size(),
                                                   " tokens and the context is ", context(),
                                                   "; shorten it"));
  }
  for (size_t at = 0; at < tokens.size(); at += step) {
    const size_t n = std::min<size_t>(step, tokens.size() - at);
    const Chunk c{sequence, tokens.subspan(at, n),
                  at + n == tokens.size() ? Want::kLast : Want::kNone};
    RETURN_IF_ERROR(Step({&c, 1}));
  }
  return absl::OkStatus();
}

MemoryUse Engine::memory() const {
  MemoryUse m;
  m.weights = model().program().weights_bytes;
  m.kv = (pages() - free_pages()) * runner_->page_bytes();
  m.workspace = runner_->workspace_bytes();
  m.code = model().code().bytes();
  return m;
}

}  // namespace cuvil::engine
