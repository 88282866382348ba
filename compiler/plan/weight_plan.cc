#include "compiler/plan/weight_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.h"

namespace cuvil::plan {
namespace {

using passes::Group;
using passes::GroupKind;

WeightLayout LayoutFor(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return WeightLayout::kQ4_0;
    case DType::kQ4_1:
      return WeightLayout::kQ4_1;
    case DType::kQ8_0:
      return WeightLayout::kQ8_0;
    case DType::kF16:
      return WeightLayout::kF16;
    case DType::kBf16:
      return WeightLayout::kBf16;
    default:
      return WeightLayout::kF32;  // every other block type expands exactly at load
  }
}

bool IsBlockLayout(WeightLayout w) {
  return w == WeightLayout::kQ4_0 || w == WeightLayout::kQ4_1 || w == WeightLayout::kQ8_0;
}

class WeightPlanner {
 public:
  WeightPlanner(const ir::Graph& graph, bool exact, runtime::Program& program)
      : g_(graph), exact_(exact), program_(program) {}

  absl::StatusOr<std::vector<GroupWeights>> Run(const std::vector<Group>& groups) {
    for (const Group& group : groups) RETURN_IF_ERROR(AddWeights(group));
    PlaceWeights();
    return std::move(out_);
  }

 private:
  const ir::TensorType& TypeOf(ir::ValueId v) const { return g_.tensor_type(v); }
  int64_t RowsOf(ir::ValueId w) const { return *TypeOf(w).dims[0].constant(); }
  int64_t ColumnsOf(ir::ValueId w) const { return *TypeOf(w).dims[1].constant(); }
  std::string NameOf(ir::ValueId v) const { return g_.value(v).name; }

  int AddFloats(const std::string& name, std::vector<runtime::RowRun> runs, int64_t count) {
    for (size_t i = 0; i < program_.weights.size(); ++i) {
      if (program_.weights[i].name == name) return static_cast<int>(i);
    }
    program_.weights.push_back({.name = name,
                                .prep = runtime::Prep::kFloats,
                                .layout = WeightLayout::kF32,
                                .k = 1,
                                .runs = std::move(runs),
                                .bytes = AlignUp<int64_t>(count, 16) * 4,
                                .segment = segment_});
    return static_cast<int>(program_.weights.size()) - 1;
  }

  int AddVector(ir::ValueId v) {
    const int64_t n = *TypeOf(v).dims[0].constant();
    return AddFloats(NameOf(v), {{NameOf(v), 0, n}}, n);
  }

  int AddMatrix(const std::string& name, WeightLayout layout, int64_t k,
                std::vector<runtime::RowRun> runs) {
    for (size_t i = 0; i < program_.weights.size(); ++i) {
      if (program_.weights[i].name == name) return static_cast<int>(i);
    }
    int64_t rows = 0;
    for (const runtime::RowRun& run : runs) rows += run.rows;
    program_.weights.push_back({.name = name,
                                .prep = runtime::Prep::kStrips,
                                .layout = layout,
                                .k = k,
                                .runs = std::move(runs),
                                .bytes = rows / kStripRows * WeightStripBytes(layout, k),
                                .segment = segment_});
    return static_cast<int>(program_.weights.size()) - 1;
  }

  // Matrices of one kernel share a layout: their own when they agree, else f32, which holds any
  // exactly.
  WeightLayout CommonLayout(const Group& g) const {
    const WeightLayout first = LayoutFor(TypeOf(g.weights[0]).dtype);
    for (const ir::ValueId w : g.weights) {
      if (LayoutFor(TypeOf(w).dtype) != first) return WeightLayout::kF32;
    }
    return first;
  }

  ActFormat ActFor(WeightLayout layout) const {
    return !exact_ && IsBlockLayout(layout) ? ActFormat::kA8B32 : ActFormat::kF32;
  }

  absl::Status AddWeights(const Group& g) {
    GroupWeights w;
    // Segments follow execution: the embedding, then each layer, then the head.
    if (g.kind == GroupKind::kHeads || g.kind == GroupKind::kLogits) ++segment_;
    if (g.norm.valid()) w.norm = AddVector(g.norm);
    if (g.q_norm.valid()) w.q_norm = AddVector(g.q_norm);
    if (g.k_norm.valid()) w.k_norm = AddVector(g.k_norm);
    if (!g.weights.empty()) {
      w.layout = CommonLayout(g);
      w.act = ActFor(w.layout);
      std::vector<runtime::RowRun> runs, bias_runs;
      std::string name;
      for (const ir::ValueId v : g.weights)
        absl::StrAppend(&name, name.empty() ? "" : "+", NameOf(v));
      const bool bias =
          std::any_of(g.biases.begin(), g.biases.end(), [](ir::ValueId v) { return v.valid(); });
      int64_t rows = 0;
      auto add_run = [&](size_t i, int64_t first, int64_t count) {
        runs.push_back({NameOf(g.weights[i]), first, count});
        if (bias)
          bias_runs.push_back({g.biases[i].valid() ? NameOf(g.biases[i]) : "", first, count});
        rows += count;
      };
      if (g.kind == GroupKind::kGated) {
        for (int64_t r = 0; r < RowsOf(g.weights[0]); r += 32) {
          add_run(0, r, 32);
          add_run(1, r, 32);
        }
      } else {
        for (size_t i = 0; i < g.weights.size(); ++i) add_run(i, 0, RowsOf(g.weights[i]));
      }
      const int64_t padded = AlignUp<int64_t>(rows, g.kind == GroupKind::kHeads ? g.head_dim : 64);
      if (g.kind == GroupKind::kLinear && rows % 32 != 0)
        return RequireMultiple(absl::StrCat("the height of ", name), rows, 32);
      const int64_t target = g.kind == GroupKind::kLinear ? rows : padded;
      if (target > rows) runs.push_back({"", 0, target - rows});
      w.matrix = AddMatrix(name, w.layout, ColumnsOf(g.weights[0]), std::move(runs));
      if (bias) {
        if (target > rows) bias_runs.push_back({"", 0, target - rows});
        w.bias = AddFloats(absl::StrCat(name, ".bias"), std::move(bias_runs), target);
      }
    }
    out_.push_back(w);
    return absl::OkStatus();
  }

  void PlaceWeights() {
    int64_t at = 0;
    for (runtime::WeightDecl& w : program_.weights) {
      w.offset = at;
      at += AlignUp<int64_t>(w.bytes, 64);
    }
    program_.weights_bytes = at;
    program_.segments = segment_ + 1;
  }

  const ir::Graph& g_;
  const bool exact_;
  runtime::Program& program_;
  std::vector<GroupWeights> out_;
  int segment_ = 0;
};

}  // namespace

std::string_view LayoutName(WeightLayout w) {
  static constexpr std::string_view kNames[] = {"q4_0", "q4_1", "q8_0", "f32", "f16", "bf16"};
  return kNames[static_cast<int>(w)];
}

absl::Status RequireMultiple(std::string_view what, int64_t value, int64_t of) {
  if (value % of == 0 && value > 0) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(Sv(what), " is ", value, "; the CPU templates need a multiple of ", of));
}

absl::StatusOr<std::vector<GroupWeights>> PlanWeights(const ir::Graph& graph,
                                                      const std::vector<Group>& groups, bool exact,
                                                      runtime::Program& program) {
  return WeightPlanner(graph, exact, program).Run(groups);
}

}  // namespace cuvil::plan
