#include "engine/step_runner.h"

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

// The step's inputs, in the order of runtime/step_inputs.h.
struct StepRunner::Inputs {
  std::vector<int32_t> ids;
  std::vector<int64_t> row_kv, tables, items, merge_items;
  std::vector<int32_t> out_rows;
  std::vector<std::vector<float>> ropes;
  std::vector<uint8_t*> pointers;
};

// Where the next row, output and work item go while a step's inputs are filled.
struct StepRunner::Cursor {
  int64_t row = 0, outs = 0, items = 0, merges = 0, table = 0, slots = 0;
};

StepRunner::StepRunner(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

StepRunner::~StepRunner() {
  if (arena_ != nullptr) munmap(arena_, arena_bytes_);
  if (kv_ != nullptr) munmap(kv_, kv_bytes_);
}

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(std::shared_ptr<const Model> model,
                                                               const RunnerOptions& options) {
  std::unique_ptr<StepRunner> runner(new StepRunner(std::move(model)));
  RETURN_IF_ERROR(runner->Allocate(options));
  return runner;
}

absl::Status StepRunner::Allocate(const RunnerOptions& options) {
  const runtime::Program& p = model_->program();
  const runtime::StateDecl& state = p.states[0];
  page_tokens_ = state.page_tokens;
  context_ = model_->config().context_length;
  page_count_ = options.pages;
  sequences_max_ = options.sequences_max;
  int64_t kv_bytes = 0;
  if (!CheckedMul<int64_t>(page_count_, state.page_bytes, &kv_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pool of ", page_count_, " pages of keys and values is too large"));
  }
  kv_bytes_ = std::max<int64_t>(kv_bytes, 1);
  ASSIGN_OR_RETURN(kv_, Reserve(kv_bytes_, false, "keys and values"));
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
  // Sequences may share pages, so tables can be longer than the pool.
  in_->tables.resize(sequences_max_ * CeilDiv<int64_t>(context_, page_tokens_));
  in_->items.resize((rows * kv_heads + slots) * kWorkItemFields);
  in_->merge_items.resize(rows * kv_heads * 4);
  in_->out_rows.resize(rows);
  for (const runtime::RopeDecl& rope : p.ropes) in_->ropes.emplace_back(rows * rope.dim * 2);
  auto bytes = [](auto& v) { return reinterpret_cast<uint8_t*>(v.data()); };
  in_->pointers = {bytes(in_->ids),   bytes(in_->row_kv),      bytes(in_->tables),
                   bytes(in_->items), bytes(in_->merge_items), bytes(in_->out_rows)};
  for (std::vector<float>& rope : in_->ropes) in_->pointers.push_back(bytes(rope));
  CUVIL_CHECK(in_->pointers.size() == p.inputs.size(), "the runner fills every input of a step");
  BindPlans();
  return absl::OkStatus();
}

void StepRunner::BindPlans() {
  const runtime::Program& p = model_->program();
  whole_ = model_->code().whole();  // before the code is taken: it may become whole between
  compiled_ = model_->code().compiled();
  bound_.clear();
  for (const runtime::Plan& plan : p.plans) {
    std::vector<runtime::BoundLaunch>& launches = bound_.emplace_back();
    if (!whole_ && &plan != &p.plans.back()) continue;
    for (const runtime::Launch& launch : plan.launches) {
      runtime::BoundLaunch b;
      b.fn = compiled_->code->Function(p.kernels[launch.kernel].symbol);
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
            b.buffers.push_back(nullptr);  // grows with the wanted rows
            break;
        }
      }
      b.scalars.resize(launch.scalars.size());
      if (launch.segment >= 0) b.ready = model_->weights().ready(launch.segment);
      launches.push_back(std::move(b));
    }
  }
}

int64_t StepRunner::rows_max() const { return model_->program().plans.back().rows_max; }

int64_t StepRunner::page_bytes() const { return model_->program().states[0].page_bytes; }

absl::Status StepRunner::Check(absl::Span<const StepRows> rows, int64_t* total,
                               int64_t* outs) const {
  *total = *outs = 0;
  CUVIL_CHECK(static_cast<int>(rows.size()) <= sequences_max_, "no more sequences than declared");
  for (const StepRows& r : rows) {
    const int64_t n = static_cast<int64_t>(r.tokens.size());
    if (n == 0) return absl::InvalidArgumentError("a chunk has no tokens; give at least one");
    const int64_t end = r.begin + n;
    if (end > context_) {
      return absl::InvalidArgumentError(absl::StrCat("the sequence would have ", end,
                                                     " tokens and the context is ", context_,
                                                     "; shorten it"));
    }
    for (const int32_t token : r.tokens) {
      if (token < 0 || token >= vocab_size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is outside the vocabulary of ", vocab_size()));
      }
    }
    *total += n;
    *outs += r.want == Want::kAll ? n : r.want == Want::kLast ? 1 : 0;
  }
  if (*total == 0 || *total > rows_max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", *total, " rows; it takes 1 to ", rows_max()));
  }
  return absl::OkStatus();
}

// cos and sin in the order of the head's elements; the sine carries the sign of its element.
void StepRunner::FillRope(int64_t row, int64_t position) {
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

// Attention's work: one item per rows, KV head and range of key blocks.
void StepRunner::FillItems(const StepRows& r, int64_t total, const runtime::Plan& plan,
                           Cursor& at) {
  const int64_t kv_heads = model_->config().n_head_kv;
  const int64_t n = static_cast<int64_t>(r.tokens.size());
  const int64_t table = at.table * 8;
  auto add = [&](int64_t row, int64_t rows, int64_t position, int64_t head, int64_t first,
                 int64_t end, int64_t slot) {
    const int64_t fields[kWorkItemFields] = {row,   rows, table, position, head,
                                             first, end,  slot,  r.window, r.sinks};
    std::copy(fields, fields + kWorkItemFields, in_->items.begin() + at.items++ * kWorkItemFields);
  };
  for (int64_t i = 0; i < n;) {
    const int64_t block = n - i >= plan.row_block ? plan.row_block : 1;
    const int64_t position = r.begin + i;
    const int64_t key_blocks = CeilDiv<int64_t>(position + block, kKeyBlock);
    // Cutting along the context pays when there are too few rows to occupy the workers. Each part
    // is one key block, so the merge folds exactly what one item would have folded.
    const bool split = block == 1 && key_blocks > 1 &&
                       total * kv_heads < 4 * executor_->workers() &&
                       at.slots + kv_heads * key_blocks <= plan.partial_slots;
    for (int64_t h = 0; h < kv_heads; ++h) {
      if (!split) {
        add(at.row + i, block, position, h, 0, key_blocks, -1);
        continue;
      }
      const int64_t merge[] = {at.row + i, h, at.slots, key_blocks};
      std::copy(merge, merge + 4, in_->merge_items.begin() + at.merges++ * 4);
      for (int64_t b = 0; b < key_blocks; ++b)
        add(at.row + i, 1, position, h, b, b + 1, at.slots++);
    }
    i += block;
  }
}

void StepRunner::FillInputs(absl::Span<const StepRows> rows, int64_t total,
                            const runtime::Plan& plan, int64_t* header) {
  const int64_t bytes = page_bytes();
  Cursor at;
  for (const StepRows& r : rows) {
    const int64_t n = static_cast<int64_t>(r.tokens.size());
    CUVIL_CHECK(static_cast<int64_t>(r.pages.size()) >= CeilDiv<int64_t>(r.begin + n, page_tokens_),
                "a step's page tables reach to its last row");
    for (int64_t i = 0; i < n; ++i) {
      const int64_t position = r.begin + i;
      const int32_t page = r.pages[position / page_tokens_];
      CUVIL_CHECK(page >= 0 && page < page_count_, "a row's own page is there");
      in_->ids[at.row + i] = r.tokens[i];
      in_->row_kv[(at.row + i) * 2] = page * bytes;
      in_->row_kv[(at.row + i) * 2 + 1] = position % page_tokens_;
      FillRope(at.row + i, position);
      if (r.want == Want::kAll || (r.want == Want::kLast && i == n - 1))
        in_->out_rows[at.outs++] = static_cast<int32_t>(at.row + i);
    }
    FillItems(r, total, plan, at);
    // What is gone is masked, but its block may be read: any page will do.
    for (int64_t i = 0; i < CeilDiv<int64_t>(r.begin + n, page_tokens_); ++i)
      in_->tables[at.table++] = std::max(r.pages[i], 0) * bytes;
    at.row += n;
  }
  header[runtime::kStepRows] = at.row;
  header[runtime::kStepOuts] = at.outs;
  header[runtime::kStepItems] = at.items;
  header[runtime::kStepMerges] = at.merges;
  header[runtime::kStepPrefetch] = kPrefetchBytes;
}

absl::Status StepRunner::Step(absl::Span<const StepRows> rows, bool hidden,
                              std::vector<LaunchTime>* times) {
  int64_t total, outs;
  RETURN_IF_ERROR(Check(rows, &total, &outs));
  const runtime::Program& p = model_->program();
  if (!whole_ && model_->code().whole()) BindPlans();
  size_t plan_index = whole_ ? 0 : p.plans.size() - 1;
  while (p.plans[plan_index].rows_max < total) ++plan_index;
  const runtime::Plan& plan = p.plans[plan_index];
  int64_t header[runtime::kStepScalars];
  FillInputs(rows, total, plan, header);
  header[runtime::kStepHidden] = hidden ? total : 0;
  if (static_cast<int64_t>(logits_.size()) < outs * logit_stride_)
    logits_.resize(outs * logit_stride_);
  if (hidden && static_cast<int64_t>(hidden_.size()) < total * embedding_size())
    hidden_.resize(total * embedding_size());
  std::vector<runtime::BoundLaunch>& launches = bound_[plan_index];
  for (size_t i = 0; i < launches.size(); ++i) {
    const runtime::Launch& launch = plan.launches[i];
    launches[i].tiles = launch.grid.Evaluate(header);
    for (size_t j = 0; j < launch.scalars.size(); ++j)
      launches[i].scalars[j] = launch.scalars[j].Evaluate(header);
    for (size_t j = 0; j < launch.buffers.size(); ++j) {
      if (launch.buffers[j].region != Region::kOutput) continue;
      const bool logits = launch.buffers[j].index == runtime::kStepLogits;
      launches[i].buffers[j] = reinterpret_cast<uint8_t*>((logits ? logits_ : hidden_).data());
      if (logits && outs == 0) launches[i].tiles = 0;
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
  logit_rows_ = outs;
  return absl::OkStatus();
}

absl::Span<const float> StepRunner::logits(int64_t row) const {
  return {logits_.data() + row * logit_stride_, static_cast<size_t>(vocab_size())};
}

absl::Span<const float> StepRunner::hidden(int64_t row) const {
  return {hidden_.data() + row * embedding_size(), static_cast<size_t>(embedding_size())};
}

int64_t StepRunner::workspace_bytes() const {
  return static_cast<int64_t>(arena_bytes_) + executor_->workers() * executor_->scratch_bytes() +
         static_cast<int64_t>(logits_.size() + hidden_.size()) * 4;
}

}  // namespace cuvil::engine
