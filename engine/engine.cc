#include "engine/engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "compiler/kernel/template_attention.h"

namespace cuvil::engine {
namespace {

using kernel::kKeyBlock;
using kernel::kWorkItemFields;
using runtime::Region;

// The order in which the planner declares them (compiler/plan/step_plan.h).
enum Header { kRows, kOuts, kItems, kMerges, kPrefetch, kHeaderCount };

// How far ahead of the weights in use kernels prefetch; bench/kernel_bench.cc measures at the same.
constexpr int64_t kPrefetchBytes = 4096;

absl::StatusOr<uint8_t*> Reserve(size_t bytes, bool huge, std::string_view what) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot reserve ", bytes, " bytes for ", Sv(what), "; free memory or lower the context"));
  }
  if (huge) madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(p);
}

}  // namespace

// The step's inputs, in the order the program declares them.
struct Engine::Inputs {
  std::vector<int32_t> ids;
  std::vector<int64_t> row_kv, tables, items, merge_items;
  std::vector<int32_t> out_rows;
  std::vector<std::vector<float>> ropes;
  std::vector<uint8_t*> pointers;
};

Engine::Engine(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

Engine::~Engine() {
  if (arena_ != nullptr) munmap(arena_, arena_bytes_);
  if (kv_ != nullptr) munmap(kv_, kv_bytes_);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                                       const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(model)));
  RETURN_IF_ERROR(engine->Allocate(options));
  return engine;
}

absl::Status Engine::Allocate(const EngineOptions& options) {
  const runtime::Program& p = model_->program();
  const runtime::StateDecl& state = p.states[0];
  page_tokens_ = state.page_tokens;
  context_ = model_->config().context_length;
  const int64_t tokens = options.kv_tokens > 0 ? options.kv_tokens : context_;
  // A page of slack per sequence: each may leave its last page partly empty.
  page_count_ = CeilDiv<int64_t>(tokens, page_tokens_) + options.sequences_max;
  int64_t kv_bytes = 0;
  if (!CheckedMul<int64_t>(page_count_, state.page_bytes, &kv_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key/value pool of ", tokens, " tokens is too large"));
  }
  kv_bytes_ = kv_bytes;
  ASSIGN_OR_RETURN(kv_, Reserve(kv_bytes_, false, "keys and values"));
  for (int64_t i = page_count_ - 1; i >= 0; --i) free_pages_.push_back(static_cast<int32_t>(i));
  sequences_.resize(options.sequences_max);
  int64_t arena = 64, scratch = 64;
  for (const runtime::Plan& plan : p.plans) arena = std::max(arena, plan.arena_bytes);
  for (const runtime::KernelDecl& k : p.kernels) scratch = std::max(scratch, k.scratch_bytes);
  arena_bytes_ = arena;
  ASSIGN_OR_RETURN(arena_, Reserve(arena_bytes_, true, "activations"));
  ASSIGN_OR_RETURN(
      executor_, runtime::Executor::Create(
                     {.workers = model_->threads(), .scratch_bytes = scratch, .pin = options.pin}));
  logit_stride_ = AlignUp<int64_t>(vocab_size(), 64);

  const int64_t rows = rows_max();
  const int64_t kv_heads = model_->config().n_head_kv;
  int64_t slots = 0;
  for (const runtime::Plan& plan : p.plans) slots = std::max<int64_t>(slots, plan.partial_slots);
  in_ = std::make_unique<Inputs>();
  in_->ids.resize(rows);
  in_->row_kv.resize(rows * 2);
  in_->tables.resize(page_count_ + 1);
  in_->items.resize((rows * kv_heads + slots) * kWorkItemFields);
  in_->merge_items.resize(rows * kv_heads * 4);
  in_->out_rows.resize(rows);
  for (const runtime::RopeDecl& rope : p.ropes) in_->ropes.emplace_back(rows * rope.dim * 2);
  auto bytes = [](auto& v) { return reinterpret_cast<uint8_t*>(v.data()); };
  in_->pointers = {bytes(in_->ids),   bytes(in_->row_kv),      bytes(in_->tables),
                   bytes(in_->items), bytes(in_->merge_items), bytes(in_->out_rows)};
  for (std::vector<float>& rope : in_->ropes) in_->pointers.push_back(bytes(rope));
  CUVIL_CHECK(in_->pointers.size() == p.inputs.size(), "the engine fills every input of a step");

  for (const runtime::Plan& plan : p.plans) {
    std::vector<runtime::BoundLaunch> launches;
    for (const runtime::Launch& launch : plan.launches) {
      runtime::BoundLaunch b;
      b.fn = model_->code().Function(p.kernels[launch.kernel].symbol);
      for (const runtime::Arg& arg : launch.buffers) {
        switch (arg.region) {
          case Region::kArena:
            b.buffers.push_back(arena_ + arg.offset);
            break;
          case Region::kWeights:
            b.buffers.push_back(model_->weights().data(arg.index) + arg.offset);
            break;
          case Region::kState:
            b.buffers.push_back(kv_ + arg.offset);
            break;
          case Region::kInput:
            b.buffers.push_back(in_->pointers[arg.index] + arg.offset);
            break;
          case Region::kOutput:
            b.buffers.push_back(nullptr);
            break;  // grows with the wanted rows
        }
      }
      b.scalars.resize(launch.scalars.size());
      if (launch.segment >= 0) b.ready = model_->weights().ready(launch.segment);
      launches.push_back(std::move(b));
    }
    bound_.push_back(std::move(launches));
  }
  return absl::OkStatus();
}

int64_t Engine::rows_max() const { return model_->program().plans.back().rows_max; }

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
  const size_t keep = CeilDiv<int64_t>(length, page_tokens_);
  while (s.pages.size() > keep) {
    free_pages_.push_back(s.pages.back());
    s.pages.pop_back();
  }
}

absl::Status Engine::Check(absl::Span<const Chunk> chunks, int64_t* rows, int64_t* outs) const {
  *rows = *outs = 0;
  std::vector<bool> seen(sequences_.size());
  for (const Chunk& c : chunks) {
    CUVIL_CHECK(c.sequence.value >= 0 && c.sequence.value < static_cast<int>(sequences_.size()) &&
                    sequences_[c.sequence.value].live,
                "steps take live sequences");
    CUVIL_CHECK(!seen[c.sequence.value], "a sequence has one chunk a step");
    seen[c.sequence.value] = true;
    const int64_t end = sequences_[c.sequence.value].length + static_cast<int64_t>(c.tokens.size());
    if (c.tokens.empty())
      return absl::InvalidArgumentError("a chunk has no tokens; give at least one");
    if (end > context_) {
      return absl::InvalidArgumentError(absl::StrCat("the sequence would have ", end,
                                                     " tokens and the context is ", context_,
                                                     "; shorten it"));
    }
    for (const int32_t token : c.tokens) {
      if (token < 0 || token >= vocab_size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is outside the vocabulary of ", vocab_size()));
      }
    }
    *rows += static_cast<int64_t>(c.tokens.size());
    *outs += c.want == Want::kAll    ? static_cast<int64_t>(c.tokens.size())
             : c.want == Want::kLast ? 1
                                     : 0;
  }
  if (*rows == 0 || *rows > rows_max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", *rows, " rows; it takes 1 to ", rows_max()));
  }
  return absl::OkStatus();
}

absl::Status Engine::ReservePages(absl::Span<const Chunk> chunks) {
  int64_t needed = 0;
  for (const Chunk& c : chunks) {
    const Sequence& s = sequences_[c.sequence.value];
    needed += CeilDiv<int64_t>(s.length + static_cast<int64_t>(c.tokens.size()), page_tokens_) -
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
        CeilDiv<int64_t>(s.length + static_cast<int64_t>(c.tokens.size()), page_tokens_);
    while (s.pages.size() < want) {
      s.pages.push_back(free_pages_.back());
      free_pages_.pop_back();
    }
  }
  return absl::OkStatus();
}

// cos and sin in the order of the head's elements; the sine carries the sign of its element.
void Engine::FillRope(int64_t row, int64_t position) {
  const auto& ropes = model_->program().ropes;
  for (size_t i = 0; i < ropes.size(); ++i) {
    const runtime::RopeDecl& r = ropes[i];
    float* cosine = in_->ropes[i].data() + row * r.dim * 2;
    float* sine = cosine + r.dim;
    for (int j = 0; j < r.dim / 2; ++j) {
      const double angle = static_cast<double>(position) * r.freqs[j];
      const float c = static_cast<float>(std::cos(angle) * r.scale),
                  s = static_cast<float>(std::sin(angle) * r.scale);
      const int first = r.half ? j : 2 * j, second = r.half ? j + r.dim / 2 : 2 * j + 1;
      cosine[first] = cosine[second] = c;
      sine[first] = -s;
      sine[second] = s;
    }
  }
}

void Engine::FillInputs(absl::Span<const Chunk> chunks, const runtime::Plan& plan,
                        int64_t* header) {
  const int64_t page_bytes = model_->program().states[0].page_bytes;
  const int64_t kv_heads = model_->config().n_head_kv;
  int64_t total_rows = 0;
  for (const Chunk& c : chunks) total_rows += static_cast<int64_t>(c.tokens.size());
  int64_t row = 0, outs = 0, items = 0, merges = 0, table = 0, slots = 0;
  auto add_item = [&](std::initializer_list<int64_t> fields) {
    std::copy(fields.begin(), fields.end(), in_->items.begin() + items++ * kWorkItemFields);
  };
  for (const Chunk& c : chunks) {
    const Sequence& s = sequences_[c.sequence.value];
    const int64_t n = static_cast<int64_t>(c.tokens.size());
    const int64_t table_offset = table * 8;
    for (const int32_t page : s.pages) in_->tables[table++] = page * page_bytes;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t position = s.length + i;
      in_->ids[row + i] = c.tokens[i];
      in_->row_kv[(row + i) * 2] = s.pages[position / page_tokens_] * page_bytes;
      in_->row_kv[(row + i) * 2 + 1] = position % page_tokens_;
      FillRope(row + i, position);
      if (c.want == Want::kAll || (c.want == Want::kLast && i == n - 1))
        in_->out_rows[outs++] = static_cast<int32_t>(row + i);
    }
    for (int64_t i = 0; i < n;) {
      const int64_t block = n - i >= plan.row_block ? plan.row_block : 1;
      const int64_t position = s.length + i;
      const int64_t key_blocks = CeilDiv<int64_t>(position + block, kKeyBlock);
      // Cutting along the context pays when there are too few rows to occupy the workers. Each part
      // is one key block, so the merge folds exactly what one item would have folded.
      const bool split = block == 1 && key_blocks > 1 &&
                         total_rows * kv_heads < 4 * executor_->workers() &&
                         slots + kv_heads * key_blocks <= plan.partial_slots;
      for (int64_t h = 0; h < kv_heads; ++h) {
        if (!split) {
          add_item({row + i, block, table_offset, position, h, 0, key_blocks, -1});
          continue;
        }
        const int64_t merge[] = {row + i, h, slots, key_blocks};
        std::copy(merge, merge + 4, in_->merge_items.begin() + merges++ * 4);
        for (int64_t b = 0; b < key_blocks; ++b)
          add_item({row + i, 1, table_offset, position, h, b, b + 1, slots++});
      }
      i += block;
    }
    row += n;
  }
  header[kRows] = row;
  header[kOuts] = outs;
  header[kItems] = items;
  header[kMerges] = merges;
  header[kPrefetch] = kPrefetchBytes;
}

absl::Status Engine::RunStep(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times) {
  int64_t rows, outs;
  RETURN_IF_ERROR(Check(chunks, &rows, &outs));
  RETURN_IF_ERROR(ReservePages(chunks));
  const runtime::Program& p = model_->program();
  size_t plan_index = 0;
  while (p.plans[plan_index].rows_max < rows) ++plan_index;
  const runtime::Plan& plan = p.plans[plan_index];
  int64_t header[kHeaderCount];
  FillInputs(chunks, plan, header);
  if (static_cast<int64_t>(logits_.size()) < outs * logit_stride_)
    logits_.resize(outs * logit_stride_);
  std::vector<runtime::BoundLaunch>& launches = bound_[plan_index];
  for (size_t i = 0; i < launches.size(); ++i) {
    const runtime::Launch& launch = plan.launches[i];
    launches[i].tiles = launch.grid.Evaluate(header);
    for (size_t j = 0; j < launch.scalars.size(); ++j)
      launches[i].scalars[j] = launch.scalars[j].Evaluate(header);
    for (size_t j = 0; j < launch.buffers.size(); ++j) {
      if (launch.buffers[j].region != Region::kOutput) continue;
      launches[i].buffers[j] = reinterpret_cast<uint8_t*>(logits_.data());
      if (outs == 0) launches[i].tiles = 0;
    }
  }
  if (times == nullptr) {
    executor_->Run(launches);
  } else {
    std::vector<int64_t> ns(launches.size());
    executor_->RunTimed(launches, absl::MakeSpan(ns));
    times->clear();
    for (size_t i = 0; i < launches.size(); ++i) {
      times->push_back({plan.launches[i].label, p.kernels[plan.launches[i].kernel].symbol,
                        launches[i].tiles, ns[i]});
    }
  }
  for (const Chunk& c : chunks)
    sequences_[c.sequence.value].length += static_cast<int64_t>(c.tokens.size());
  logit_rows_ = outs;
  return absl::OkStatus();
}

absl::Status Engine::Step(absl::Span<const Chunk> chunks) { return RunStep(chunks, nullptr); }

absl::Status Engine::StepTimed(absl::Span<const Chunk> chunks, std::vector<LaunchTime>* times) {
  return RunStep(chunks, times);
}

absl::Status Engine::Prefill(SequenceId sequence, absl::Span<const int32_t> tokens, int64_t chunk) {
  const int64_t step = chunk > 0 ? std::min(chunk, rows_max()) : rows_max();
  if (length(sequence) + static_cast<int64_t>(tokens.size()) > context_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", tokens.size(), " tokens and the context is ", context_, "; shorten it"));
  }
  for (size_t at = 0; at < tokens.size(); at += step) {
    const size_t n = std::min<size_t>(step, tokens.size() - at);
    const Chunk c{sequence, tokens.subspan(at, n),
                  at + n == tokens.size() ? Want::kLast : Want::kNone};
    RETURN_IF_ERROR(Step({&c, 1}));
  }
  return absl::OkStatus();
}

absl::Span<const float> Engine::logits(int64_t row) const {
  return {logits_.data() + row * logit_stride_, static_cast<size_t>(vocab_size())};
}

MemoryUse Engine::memory() const {
  const runtime::Program& p = model_->program();
  MemoryUse m;
  m.weights = p.weights_bytes;
  m.kv = (page_count_ - free_pages()) * p.states[0].page_bytes;
  m.workspace = static_cast<int64_t>(arena_bytes_) +
                executor_->workers() * executor_->scratch_bytes() +
                static_cast<int64_t>(logits_.size()) * 4;
  m.code = static_cast<int64_t>(model_->code().code_bytes());
  return m;
}

}  // namespace cuvil::engine
