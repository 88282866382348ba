#include "compiler/plan/step_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/checked.h"
#include "compiler/kernel/template_attention.h"
#include "compiler/plan/arena.h"
#include "compiler/plan/reason.h"
#include "compiler/plan/weight_plan.h"
#include "runtime/step_inputs.h"

namespace cuvil::plan {
namespace {

using kernel::Kernel;
using kernel::Scalar;
using passes::Group;
using passes::GroupKind;
using runtime::Arg;
using runtime::Expr;
using runtime::Launch;
using runtime::Region;

// Results of cut attention that may wait for the merge (AttentionSlotBytes each). One row with 3 KV
// heads is cut up to 512 / 3 key blocks, 43520 keys; what finds no slots is not cut.
constexpr int kPartialSlots = 512;

Expr Constant(int64_t v) { return {.scalar = -1, .constant = v}; }
Expr FromHeader(runtime::StepScalar h) { return {.scalar = h}; }

class Planner {
 public:
  Planner(const ir::Graph& g, const std::vector<Group>& groups, const StepOptions& o)
      : g_(g),
        groups_(groups),
        o_(o),
        kv_(o.numerics == Numerics::kExact ? Scalar::kF32 : Scalar::kF16) {}

  absl::StatusOr<StepProgram> Run() {
    p_.header = {"rows", "outs", "items", "merges", "prefetch", "hidden"};
    p_.inputs = {{"ids", DType::kI32},   {"row_kv", DType::kI64},      {"tables", DType::kI64},
                 {"items", DType::kI64}, {"merge_items", DType::kI64}, {"out_rows", DType::kI32}};
    p_.outputs = {{"logits", DType::kF32}, {"hidden", DType::kF32}};
    RETURN_IF_ERROR(Sizes());
    ASSIGN_OR_RETURN(weights_, PlanWeights(g_, groups_, o_.numerics == Numerics::kExact, p_));
    for (const Group& group : groups_) {
      p_.decisions.push_back({.rule = group.rule,
                              .applied = true,
                              .reason = std::string(ReasonFor(group)),
                              .trust = 1,
                              .sources = group.sources});
    }
    RETURN_IF_ERROR(AddPlan("decode", o_.decode_rows, false));
    RETURN_IF_ERROR(AddPlan("prefill", o_.prefill_rows, true));
    return std::move(out_);
  }

 private:
  // ---- Sizes ----
  const ir::TensorType& TypeOf(ir::ValueId v) const { return g_.tensor_type(v); }
  int64_t RowsOf(ir::ValueId w) const { return *TypeOf(w).dims[0].constant(); }
  int64_t ColumnsOf(ir::ValueId w) const { return *TypeOf(w).dims[1].constant(); }
  std::string NameOf(ir::ValueId v) const { return g_.value(v).name; }

  absl::Status Sizes() {
    for (const Group& g : groups_) {
      if (g.kind == GroupKind::kEmbed) n_embd_ = ColumnsOf(g.weights[0]);
      if (g.kind == GroupKind::kLogits) vocab_ = AlignUp<int64_t>(RowsOf(g.weights[0]), 64);
      for (const ir::ValueId w : g.weights)
        RETURN_IF_ERROR(
            RequireMultiple(absl::StrCat("the width of ", NameOf(w)), ColumnsOf(w), 32));
      if (g.kind == GroupKind::kHeads) {
        RETURN_IF_ERROR(RequireMultiple("head_dim", g.head_dim, 32));
        if (g.rope.dim > 0) {
          RETURN_IF_ERROR(RequireMultiple("rope dimension", g.rope.dim,
                                          g.rope.half ? 2 * o_.machine.lanes : o_.machine.lanes));
        }
        if (layers_ > 0 &&
            (g.kv_heads != kv_heads_ || g.head_dim != head_dim_ || g.heads != n_head_)) {
          return absl::UnimplementedError(
              absl::StrCat("layer ", g.layer, " has ", g.heads, "/", g.kv_heads, " heads of ",
                           g.head_dim, " and the one before it ", n_head_, "/", kv_heads_, " of ",
                           head_dim_, "; the CPU templates need the same in every layer"));
        }
        layers_ = std::max(layers_, g.layer + 1);
        kv_heads_ = g.kv_heads;
        head_dim_ = g.head_dim;
        n_head_ = g.heads;
        if (RopeIndex(g.rope) < 0) {
          ropes_.push_back(g.rope);
          const std::string name = absl::StrCat("rope.", ropes_.size() - 1);
          p_.inputs.push_back({name, DType::kF32});
          p_.ropes.push_back(
              {name, g.rope.half, static_cast<int32_t>(g.rope.dim), g.rope.scale, g.rope.freqs});
        }
      }
      if (g.kind == GroupKind::kGated)
        RETURN_IF_ERROR(RequireMultiple("the feed-forward width", RowsOf(g.weights[0]), 32));
      if (g.kind == GroupKind::kLogits && g.softcap != 0) {
        return absl::UnimplementedError("a soft cap on logits has no kernel yet");
      }
    }
    head_bytes_ = kernel::KvHeadBytes(o_.page_tokens, head_dim_, kv_);
    p_.states = {{"kv", layers_ * kv_heads_ * head_bytes_, o_.page_tokens}};
    return absl::OkStatus();
  }

  int RopeIndex(const passes::Rope& rope) const {
    for (size_t i = 0; i < ropes_.size(); ++i) {
      if (ropes_[i] == rope) return static_cast<int>(i);
    }
    return -1;
  }

  // ---- Plans ----
  // A value in the arena while a plan is being written.
  struct Live {
    int slot;
    ActFormat format = ActFormat::kF32;
  };

  absl::Status AddPlan(const std::string& name, int64_t rows, bool wide) {
    plan_ = {.name = name, .rows_max = rows};
    wide_ = wide;
    live_.clear();
    intervals_.clear();
    kernel::AttentionParams attention = AttentionOf(nullptr);
    plan_.row_block = wide ? kernel::AttentionRowBlock(attention, o_.machine) : 1;
    plan_.partial_slots = kPartialSlots;
    for (size_t i = 0; i < groups_.size(); ++i) {
      group_ = static_cast<int>(i);
      RETURN_IF_ERROR(CheckReads(groups_[i]));
      RETURN_IF_ERROR(AddGroup(groups_[i], weights_[i]));
    }
    int64_t total = 0;
    const std::vector<int64_t> offsets = AssignOffsets(intervals_, 64, &total);
    plan_.arena_bytes = total;
    for (size_t i = 0; i < intervals_.size(); ++i) {
      plan_.slots.push_back({intervals_[i].name, offsets[i], intervals_[i].bytes,
                             intervals_[i].first, intervals_[i].last});
    }
    // Until now arena arguments held slot numbers.
    for (Launch& launch : plan_.launches) {
      for (Arg& arg : launch.buffers) {
        if (arg.region == Region::kArena) arg.offset = offsets[arg.offset];
      }
    }
    p_.plans.push_back(std::move(plan_));
    return absl::OkStatus();
  }

  // Graphs come from outside too (cuvil-opt): what a group reads must be what a group before it
  // made, and residual adds must be on the one stream that starts at the embedding.
  absl::Status CheckReads(const Group& g) const {
    if (g.kind == GroupKind::kEmbed) return absl::OkStatus();
    const auto made = [&](ir::ValueId v) { return live_.count(v.value) != 0; };
    const bool stream =
        !g.residual.valid() || (made(g.residual) && live_.at(g.residual.value).slot == x_slot_);
    if (made(g.input) && stream) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("group ", g.rule, " at ", g.sources.empty() ? "?" : g.sources[0],
                     made(g.input) ? " adds to something else than the residual stream"
                                   : " reads a value that no group before it makes",
                     "; the step compiler needs one residual stream that starts at the embedding"));
  }

  int NewSlot(const std::string& name, int64_t bytes) {
    const int at = static_cast<int>(plan_.launches.size());
    intervals_.push_back({name, bytes, at, at});
    return static_cast<int>(intervals_.size()) - 1;
  }

  // Arguments. Touching a slot extends its life to the launch being written.
  Arg Slot(int slot) {
    intervals_[slot].last = static_cast<int>(plan_.launches.size());
    return {Region::kArena, 0, slot};
  }
  Arg Weight(int index) const { return {Region::kWeights, index, 0}; }
  Arg In(int index) const { return {Region::kInput, index, 0}; }

  Live& At(ir::ValueId v) {
    const auto it = live_.find(v.value);
    CUVIL_CHECK(it != live_.end(), "a group reads a value no group made");
    return it->second;
  }

  void AddLaunch(int kernel, Expr grid, std::vector<Arg> buffers, std::vector<Expr> scalars,
                 const std::string& label) {
    plan_.launches.push_back({.kernel = kernel,
                              .grid = grid,
                              .buffers = std::move(buffers),
                              .scalars = std::move(scalars),
                              .segment = SegmentOf(weights_[group_]),
                              .decision = group_,
                              .label = label});
  }

  int SegmentOf(const GroupWeights& w) const {
    int segment = -1;
    for (const int i : {w.matrix, w.norm, w.bias, w.q_norm, w.k_norm}) {
      if (i >= 0) segment = std::max(segment, p_.weights[i].segment);
    }
    return segment;
  }

  // One kernel per distinct description.
  int KernelFor(const std::string& name, const std::function<Kernel()>& build) {
    const auto it = kernel_ids_.find(name);
    if (it != kernel_ids_.end()) return it->second;
    Kernel k = build();
    const int id = static_cast<int>(out_.kernels.size());
    p_.kernels.push_back({.symbol = k.name,
                          .scratch_bytes = k.scratch_bytes,
                          .buffers = static_cast<int32_t>(k.buffers.size()),
                          .scalars = static_cast<int32_t>(k.scalars.size())});
    out_.kernels.push_back(std::move(k));
    kernel_ids_[name] = id;
    return id;
  }

  kernel::LinearParams LinearOf(const GroupWeights& w, const Group& g) const {
    kernel::LinearParams p;
    p.k = ColumnsOf(g.weights[0]);
    p.weights = w.layout;
    p.act = w.act;
    p.rows_max = static_cast<int>(plan_.rows_max);
    p.bias = w.bias >= 0;
    p.norm_eps = g.norm_eps;
    p.prefetch = !wide_;
    return p;
  }

  std::string Describe(const kernel::LinearParams& p, std::string_view what) const {
    return absl::StrCat(wide_ ? "prefill_" : "decode_", Sv(what), "_", Sv(LayoutName(p.weights)),
                        p.act == ActFormat::kA8B32 ? "_a8b32" : "_f32", "_k", p.k,
                        p.bias ? "_bias" : "",
                        p.prologue == kernel::Prologue::kNormRows ? "_norm" : "");
  }

  // The row records a linear reads: as they are, made by the launch's prologue, or (many rows) by a
  // launch before it. Returns the leading buffer arguments after the weights.
  std::vector<Arg> Activations(const Group& g, const GroupWeights& w, kernel::LinearParams& p,
                               const std::string& label) {
    Live& input = At(g.input);
    // f32 rows are f32 records: widths are multiples of 32.
    if (!g.norm.valid() && input.format == p.act) {
      p.prologue = kernel::Prologue::kActs;
      return {Slot(input.slot)};
    }
    if (!wide_) {
      p.prologue = g.norm.valid() ? kernel::Prologue::kNormRows : kernel::Prologue::kRows;
      std::vector<Arg> args = {Slot(input.slot)};
      if (g.norm.valid()) args.push_back(Weight(w.norm));
      return args;
    }
    kernel::RowsToActsParams r{
        .k = p.k, .act = p.act, .norm = g.norm.valid(), .norm_eps = g.norm_eps};
    r.name = absl::StrCat("rows_to_", p.act == ActFormat::kA8B32 ? "a8b32" : "f32", "_k", p.k,
                          r.norm ? "_norm" : "", EpsName(g.norm_eps));
    const int id = KernelFor(r.name, [&] { return kernel::BuildRowsToActs(r, o_.machine); });
    const int acts = NewSlot("acts", ActRowBytes(p.act, p.k) * plan_.rows_max);
    std::vector<Arg> buffers = {Slot(input.slot)};
    if (r.norm) buffers.push_back(Weight(w.norm));
    buffers.push_back(Slot(acts));
    AddLaunch(id, FromHeader(runtime::kStepRows), std::move(buffers), {},
              absl::StrCat(label, " rows"));
    p.prologue = kernel::Prologue::kActs;
    return {Slot(acts)};
  }

  // Two kernels may differ in an epsilon or a score scale only; the name must tell.
  std::string EpsName(double eps) {
    if (eps == 0) return "";
    for (size_t i = 0; i < epsilons_.size(); ++i) {
      if (epsilons_[i] == eps) return absl::StrCat("_e", i);
    }
    epsilons_.push_back(eps);
    return absl::StrCat("_e", epsilons_.size() - 1);
  }

  absl::Status AddGroup(const Group& g, const GroupWeights& w) {
    switch (g.kind) {
      case GroupKind::kEmbed:
        return AddEmbed(g, w);
      case GroupKind::kHeads:
        return AddHeads(g, w);
      case GroupKind::kAttention:
        return AddAttention(g);
      case GroupKind::kLinear:
        return AddLinear(g, w);
      case GroupKind::kNormAdd:
        return AddNormAdd(g, w);
      case GroupKind::kGated:
        return AddGated(g, w);
      case GroupKind::kLogits:
        return AddLogits(g, w);
    }
    return absl::OkStatus();
  }

  absl::Status AddEmbed(const Group& g, const GroupWeights& w) {
    const std::string name = absl::StrCat("embed_", Sv(LayoutName(w.layout)), "_k", n_embd_);
    const int id = KernelFor(
        name, [&] { return kernel::BuildEmbed(name, w.layout, n_embd_, g.scale, o_.machine); });
    x_slot_ = NewSlot("residual", n_embd_ * 4 * plan_.rows_max);
    live_[g.output.value] = {x_slot_};
    AddLaunch(id, FromHeader(runtime::kStepRows),
              {Weight(w.matrix), In(runtime::kStepIds), Slot(x_slot_)}, {}, "embed");
    return absl::OkStatus();
  }

  absl::Status AddHeads(const Group& g, const GroupWeights& w) {
    kernel::LinearParams p = LinearOf(w, g);
    const std::string label = absl::StrCat("blk.", g.layer, " qkv");
    p.strips = static_cast<int>(g.head_dim) / kStripRows;
    p.epilogue = kernel::Epilogue::kHeads;
    p.heads = {.n_head = static_cast<int>(g.heads),
               .n_head_kv = static_cast<int>(g.kv_heads),
               .head_dim = static_cast<int>(g.head_dim),
               .rope = g.rope.dim == 0 ? kernel::RopeKind::kNone
                       : g.rope.half   ? kernel::RopeKind::kHalf
                                       : kernel::RopeKind::kAdjacent,
               .rope_dim = static_cast<int>(g.rope.dim),
               .q_scale = g.scale,
               .qk_norm = g.q_norm.valid(),
               .qk_norm_eps = g.qk_norm_eps,
               .kv = kv_,
               .page_tokens = o_.page_tokens};
    std::vector<Arg> buffers = {Weight(w.matrix)};
    for (const Arg& a : Activations(g, w, p, label)) buffers.push_back(a);
    if (w.bias >= 0) buffers.push_back(Weight(w.bias));
    const int q = NewSlot("q", g.heads * g.head_dim * 4 * plan_.rows_max);
    live_[g.output.value] = {q};
    buffers.push_back(Slot(q));
    buffers.push_back({Region::kState, 0, 0});
    buffers.push_back(In(runtime::kStepRowKv));
    buffers.push_back(In(runtime::kStepRope + RopeIndex(g.rope)));
    if (g.q_norm.valid()) {
      buffers.push_back(Weight(w.q_norm));
      buffers.push_back(Weight(w.k_norm));
    }
    p.name = absl::StrCat(Describe(p, "heads"), "_h", g.heads, "x", g.head_dim, "kv", g.kv_heads,
                          g.rope.half ? "_half" : "", "_r", g.rope.dim,
                          g.q_norm.valid() ? "_qknorm" : "", EpsName(g.norm_eps),
                          EpsName(g.qk_norm_eps), EpsName(g.scale));
    const int id = KernelFor(p.name, [&] { return kernel::BuildLinear(p, o_.machine); });
    std::vector<Expr> scalars = {FromHeader(runtime::kStepRows),
                                 Constant(g.layer * kv_heads_ * head_bytes_)};
    if (p.prefetch) scalars.push_back(FromHeader(runtime::kStepPrefetch));
    AddLaunch(id, Constant(g.heads + 2 * g.kv_heads), std::move(buffers), std::move(scalars),
              label);
    return absl::OkStatus();
  }

  kernel::AttentionParams AttentionOf(const Group* g) const {
    kernel::AttentionParams p;
    p.n_head = static_cast<int>(n_head_);
    p.n_head_kv = static_cast<int>(kv_heads_);
    p.head_dim = static_cast<int>(head_dim_);
    p.kv = kv_;
    p.page_tokens = o_.page_tokens;
    p.row_block = plan_.row_block;
    // The output feeds the group that reads it in its own format.
    if (g != nullptr) {
      for (size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i].kind == GroupKind::kLinear && groups_[i].input == g->output)
          p.out_act = weights_[i].act;
      }
    }
    return p;
  }

  absl::Status AddAttention(const Group& g) {
    kernel::AttentionParams p = AttentionOf(&g);
    const std::string act = p.out_act == ActFormat::kA8B32 ? "a8b32" : "f32";
    p.name = absl::StrCat("attention_", act, "_b", p.row_block);
    const int id = KernelFor(p.name, [&] { return kernel::BuildAttention(p, o_.machine); });
    kernel::AttentionParams m = p;
    m.name = absl::StrCat("attention_merge_", act);
    const int merge = KernelFor(m.name, [&] { return kernel::BuildAttentionMerge(m, o_.machine); });
    const int out =
        NewSlot("attention", ActRowBytes(p.out_act, n_head_ * head_dim_) * plan_.rows_max);
    const int partial = NewSlot("partial", kernel::AttentionSlotBytes(p) * plan_.partial_slots);
    live_[g.output.value] = {out, p.out_act};
    const int64_t window = g.window > 0 ? g.window : runtime::kNoWindow;
    AddLaunch(id, FromHeader(runtime::kStepItems),
              {Slot(At(g.input).slot),
               {Region::kState, 0, 0},
               In(runtime::kStepTables),
               In(runtime::kStepItemList),
               Slot(out),
               Slot(partial)},
              {Constant(g.layer * kv_heads_ * head_bytes_), Constant(window), Constant(g.sinks)},
              absl::StrCat("blk.", g.layer, " attention"));
    AddLaunch(merge, FromHeader(runtime::kStepMerges),
              {Slot(partial), In(runtime::kStepMergeList), Slot(out)}, {},
              absl::StrCat("blk.", g.layer, " merge"));
    return absl::OkStatus();
  }

  absl::Status AddLinear(const Group& g, const GroupWeights& w) {
    kernel::LinearParams p = LinearOf(w, g);
    const int64_t n = RowsOf(g.weights[0]);
    p.n_stride = n;
    p.strips = 2;
    p.epilogue = g.residual.valid() ? kernel::Epilogue::kResidual : kernel::Epilogue::kStore;
    const std::string label = NameOf(g.weights[0]);
    std::vector<Arg> buffers = {Weight(w.matrix)};
    for (const Arg& a : Activations(g, w, p, label)) buffers.push_back(a);
    if (w.bias >= 0) buffers.push_back(Weight(w.bias));
    int out;
    if (g.residual.valid()) {
      out = x_slot_;
    } else {
      out = NewSlot("linear", n * 4 * plan_.rows_max);
    }
    live_[g.output.value] = {out};
    buffers.push_back(Slot(out));
    p.name = absl::StrCat(Describe(p, g.residual.valid() ? "residual" : "store"), "_n", n,
                          EpsName(g.norm_eps));
    const int id = KernelFor(p.name, [&] { return kernel::BuildLinear(p, o_.machine); });
    std::vector<Expr> scalars = {FromHeader(runtime::kStepRows)};
    if (p.prefetch) scalars.push_back(FromHeader(runtime::kStepPrefetch));
    AddLaunch(id, Constant(n / 32), std::move(buffers), std::move(scalars), label);
    return absl::OkStatus();
  }

  absl::Status AddNormAdd(const Group& g, const GroupWeights& w) {
    const std::string name = absl::StrCat("norm_add_k", n_embd_, EpsName(g.norm_eps));
    const int id = KernelFor(
        name, [&] { return kernel::BuildNormAdd(name, n_embd_, g.norm_eps, o_.machine); });
    live_[g.output.value] = {x_slot_};
    AddLaunch(id, FromHeader(runtime::kStepRows),
              {Slot(At(g.input).slot), Weight(w.norm), Slot(x_slot_)}, {}, NameOf(g.norm));
    return absl::OkStatus();
  }

  absl::Status AddGated(const Group& g, const GroupWeights& w) {
    kernel::LinearParams p = LinearOf(w, g);
    const int64_t n_ff = RowsOf(g.weights[0]);
    const std::string label = NameOf(g.weights[0]);
    p.n_stride = n_ff;
    p.strips = 4;
    p.epilogue = kernel::Epilogue::kGated;
    p.activation = g.gelu ? kernel::Activation::kGeluTanh : kernel::Activation::kSilu;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].kind == GroupKind::kLinear && groups_[i].input == g.output)
        p.out_act = weights_[i].act;
    }
    std::vector<Arg> buffers = {Weight(w.matrix)};
    for (const Arg& a : Activations(g, w, p, label)) buffers.push_back(a);
    if (w.bias >= 0) buffers.push_back(Weight(w.bias));
    const int out = NewSlot("hidden", ActRowBytes(p.out_act, n_ff) * plan_.rows_max);
    live_[g.output.value] = {out, p.out_act};
    buffers.push_back(Slot(out));
    p.name =
        absl::StrCat(Describe(p, "gated"), "_n", n_ff, g.gelu ? "_gelu" : "",
                     p.out_act == ActFormat::kA8B32 ? "_to_a8b32" : "_to_f32", EpsName(g.norm_eps));
    const int id = KernelFor(p.name, [&] { return kernel::BuildLinear(p, o_.machine); });
    std::vector<Expr> scalars = {FromHeader(runtime::kStepRows)};
    if (p.prefetch) scalars.push_back(FromHeader(runtime::kStepPrefetch));
    AddLaunch(id, Constant(n_ff / 32), std::move(buffers), std::move(scalars), label);
    return absl::OkStatus();
  }

  absl::Status AddLogits(const Group& g, const GroupWeights& w) {
    kernel::LinearParams p = LinearOf(w, g);
    p.n_stride = vocab_;
    p.strips = 4;
    p.prologue = kernel::Prologue::kNormRows;
    p.row_indices = true;
    p.epilogue = kernel::Epilogue::kStore;
    p.name = absl::StrCat(Describe(p, "logits"), "_n", vocab_, EpsName(g.norm_eps));
    const int id = KernelFor(p.name, [&] { return kernel::BuildLinear(p, o_.machine); });
    std::vector<Expr> scalars = {FromHeader(runtime::kStepOuts)};
    if (p.prefetch) scalars.push_back(FromHeader(runtime::kStepPrefetch));
    AddLaunch(id, Constant(vocab_ / 64),
              {Weight(w.matrix),
               Slot(At(g.input).slot),
               Weight(w.norm),
               In(runtime::kStepOutRows),
               {Region::kOutput, runtime::kStepLogits, 0}},
              std::move(scalars), "logits");
    AddHidden(g, w);
    return absl::OkStatus();
  }

  void AddHidden(const Group& g, const GroupWeights& w) {
    kernel::RowsToActsParams r{
        .k = n_embd_, .act = ActFormat::kF32, .norm = true, .norm_eps = g.norm_eps};
    r.name = absl::StrCat("rows_to_f32_k", r.k, "_norm", EpsName(g.norm_eps));
    const int id = KernelFor(r.name, [&] { return kernel::BuildRowsToActs(r, o_.machine); });
    AddLaunch(
        id, FromHeader(runtime::kStepHidden),
        {Slot(At(g.input).slot), Weight(w.norm), {Region::kOutput, runtime::kStepHiddenStates, 0}},
        {}, "hidden states");
  }

  const ir::Graph& g_;
  const std::vector<Group>& groups_;
  const StepOptions& o_;
  const Scalar kv_;
  StepProgram out_;
  runtime::Program& p_ = out_.program;
  std::vector<GroupWeights> weights_;  // per group
  std::vector<passes::Rope> ropes_;
  std::vector<double> epsilons_;
  std::map<std::string, int> kernel_ids_;
  int64_t n_embd_ = 0, vocab_ = 0, n_head_ = 0, kv_heads_ = 0, head_dim_ = 0, head_bytes_ = 0;
  int layers_ = 0;
  // The plan being written.
  runtime::Plan plan_;
  bool wide_ = false;
  int group_ = 0, x_slot_ = -1;
  std::map<int32_t, Live> live_;
  std::vector<Interval> intervals_;
};

}  // namespace

absl::StatusOr<StepProgram> PlanStep(const ir::Graph& graph, const std::vector<Group>& groups,
                                     const StepOptions& options) {
  bool heads = false, logits = false, embed = false;
  for (const Group& g : groups) {
    heads |= g.kind == GroupKind::kHeads;
    logits |= g.kind == GroupKind::kLogits;
    embed |= g.kind == GroupKind::kEmbed;
  }
  if (!heads || !logits || !embed) {
    return absl::UnimplementedError(
        "a step needs an embedding, at least one attention layer and logits");
  }
  return Planner(graph, groups, options).Run();
}

}  // namespace cuvil::plan
