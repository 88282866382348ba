#include "tests/conformance/op_graphs.h"

#include <functional>

#include "compiler/ir/builder.h"

namespace cuvil::conformance {
namespace {

using ir::Dim;
using ir::GraphBuilder;
using ir::OpKind;
using ir::SymbolId;
using ir::TensorType;
using ir::ValueId;

constexpr DType kScalars[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                              DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                              DType::kBf16, DType::kF32, DType::kF64};

bool IsFloat(DType d) { return Info(d).is_float; }
std::string Name(DType d) { return std::string(Info(d).name); }

class Cases {
 public:
  // Builds one case; `make` gets a builder with symbols S (0..40) and T (1..70).
  void Add(const std::string& name, const std::function<void(GraphBuilder&, Dim, Dim)>& make) {
    GraphBuilder b("g");
    b.SetLoc("op_graphs.cc:" + name);
    const SymbolId s = b.AddSymbol({.name = "S", .min = 0, .max = 40});
    const SymbolId t = b.AddSymbol({.name = "T", .min = 1, .max = 70});
    make(b, Dim(s), Dim(t));
    absl::StatusOr<ir::Graph> graph = std::move(b).Finish();
    CUVIL_CHECK(graph.ok(), absl::StrCat(name, ": ", graph.status().message()));
    cases_.push_back({name, *std::move(graph)});
  }
  std::vector<OpCase> Done() { return std::move(cases_); }

 private:
  std::vector<OpCase> cases_;
};

void Out(GraphBuilder& b, ValueId v) { b.Output(absl::StrCat("o", b.graph().outputs().size()), v); }

void AddUnary(Cases& cases, DType d) {
  cases.Add("unary_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("x", TensorType{d, {t}});
    for (int op = 0; op <= static_cast<int>(OpKind::kNot); ++op) {
      const OpKind kind = static_cast<OpKind>(op);
      const bool numeric = kind <= OpKind::kRelu, logical = kind == OpKind::kNot;
      const bool fits = logical ? !IsFloat(d) : numeric ? d != DType::kBool : IsFloat(d);
      if (fits) Out(b, b.Unary(kind, x));
    }
    if (d != DType::kBool) Out(b, b.Clamp(x, -1.5, 100.25));
  });
}

void AddBinary(Cases& cases, DType d) {
  cases.Add("binary_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("x", TensorType{d, {3, t}});
    const ValueId y = b.Input("y", TensorType{d, {3, t}});
    for (int op = static_cast<int>(OpKind::kAdd); op <= static_cast<int>(OpKind::kOr); ++op) {
      const OpKind kind = static_cast<OpKind>(op);
      if (kind == OpKind::kPow || (kind == OpKind::kMod && IsFloat(d))) continue;  // tame, below
      const bool logical = kind == OpKind::kAnd || kind == OpKind::kOr;
      const bool compare = kind >= OpKind::kEq && kind <= OpKind::kGe;
      if (compare || (logical ? !IsFloat(d) : d != DType::kBool)) Out(b, b.Binary(kind, x, y));
    }
    Out(b, b.Select(b.Binary(OpKind::kLt, x, y), y, x));
  });
  if (!IsFloat(d)) return;
  cases.Add("tame_binary_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("tame_x", TensorType{d, {s, t}});
    const ValueId y = b.Input("tame_y", TensorType{d, {t}});
    Out(b, b.Binary(OpKind::kPow, b.Unary(OpKind::kAbs, x), y));
    Out(b, b.Binary(OpKind::kMod, x, y));
  });
}

void AddCasts(Cases& cases, DType from) {
  cases.Add("cast_" + Name(from), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("x", TensorType{from, {t}});
    for (const DType to : kScalars) Out(b, b.Cast(x, to));
  });
}

void AddReductions(Cases& cases, DType d) {
  if (d == DType::kBool) return;
  const OpKind kinds[] = {OpKind::kReduceSum, OpKind::kReduceMax, OpKind::kReduceMin,
                          OpKind::kReduceProd, OpKind::kReduceMean};
  cases.Add("reduce_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("tame_x", TensorType{d, {s, 3, t}});
    for (const OpKind kind : kinds) {
      if (kind == OpKind::kReduceMean && !IsFloat(d)) continue;
      Out(b, b.Reduce(kind, x, {.axes = {2}}));
      Out(b, b.Reduce(kind, x, {.axes = {0, 1}, .keepdims = true}));
    }
    Out(b, b.Reduce(OpKind::kReduceSum, x, {.axes = {0, 1, 2}}));
    Out(b, b.Reduce(OpKind::kReduceMax, x, {.axes = {0, 2}}));
  });
  cases.Add("arg_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("x", TensorType{d, {s, t, 19}});
    for (const OpKind kind : {OpKind::kArgMax, OpKind::kArgMin}) {
      for (const int64_t axis : {int64_t{1}, int64_t{2}})
        Out(b, b.Emit(kind, {x}, {{"axis", axis}}));
    }
    const ValueId row = b.Input("row", TensorType{d, {t}});
    Out(b, b.ArgMax(row, 0));
    Out(b, b.Reduce(OpKind::kReduceMax, row, {.axes = {0}}));  // NaN propagates
    Out(b, b.Reduce(OpKind::kReduceMin, row, {.axes = {0}}));
  });
}

void AddNorms(Cases& cases, DType d) {
  cases.Add("norm_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("tame_x", TensorType{d, {s, 5, t}});
    const ValueId w = b.Input("tame_w", TensorType{d, {t}});
    const ValueId bias = b.Input("tame_b", TensorType{DType::kF32, {t}});
    const ValueId bias_here = d == DType::kF64 ? w : bias;
    for (const int64_t axis : {0, 1, 2}) Out(b, b.Softmax(x, axis));
    Out(b, b.RmsNorm(x, ValueId{}, 1e-5));
    Out(b, b.RmsNorm(x, w, 1e-5));
    Out(b, b.LayerNorm(x, ValueId{}, ValueId{}, 1e-5));
    Out(b, b.LayerNorm(x, w, bias_here, 1e-5));
    Out(b, b.Softmax(b.Transpose(x, {2, 0, 1}), 0));
  });
}

void AddMatMul(Cases& cases, DType a, DType w) {
  cases.Add(absl::StrCat("matmul_", Name(a), "_", Name(w)), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("tame_x", TensorType{a, {s, 64}});
    if (IsBlock(w)) {
      const ValueId packed = b.Weight("tame_packed", TensorType{w, {37, 64}});
      Out(b, b.MatMul(x, packed, {.transpose_b = true}));
      return;
    }
    const ValueId y = b.Input("tame_y", TensorType{w, {64, t}});
    const ValueId yt = b.Input("tame_yt", TensorType{w, {t, 64}});
    Out(b, b.MatMul(x, y));
    Out(b, b.MatMul(x, yt, {.transpose_b = true}));
    const ValueId batch = b.Input("tame_batch", TensorType{a, {3, 1, t, s}});
    const ValueId other = b.Input("tame_other", TensorType{w, {2, s, 17}});
    Out(b, b.MatMul(batch, other));
    const ValueId turned = b.Input("tame_turned", TensorType{w, {17, s}});
    Out(b, b.MatMul(batch, b.Transpose(turned, {1, 0})));
  });
}

void AddMovement(Cases& cases, DType d) {
  cases.Add("movement_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("x", TensorType{d, {s, t, 6}});
    Out(b, b.Transpose(x, {2, 0, 1}));
    Out(b, b.Transpose(x, {1, 0, 2}));
    Out(b, b.Slice(x, {{0, 0, 1}, {s, 1, 6}, {1, 1, 2}}));
    Out(b, b.Pad(x, {1, 0, 2}, {0, 3, 1}, 7));
    Out(b, b.Concat({x, b.Pad(x, {0, 0, 0}, {0, 2, 0}), x}, 1));
    Out(b, b.Concat({b.Transpose(x, {1, 0, 2}), b.Transpose(x, {1, 0, 2})}, 2));
    const ValueId flat = b.Reshape(x, {*ir::Multiply(s, t), 6});
    Out(b, flat);
    Out(b, b.Transpose(flat, {1, 0}));
    Out(b, b.BroadcastTo(b.Slice(x, {{0, 0, 3}, {s, 1, 4}}), {5, s, t, 21}));
    const ValueId index = b.Input("index6_i", TensorType{DType::kI32, {t, 2}});
    Out(b, b.Gather(x, index, 2));
    const ValueId wide = b.Input("index1_j", TensorType{DType::kI64, {}});
    Out(b, b.Gather(x, wide, 1));
    const ValueId table = b.Weight("table", TensorType{d, {11, 33}});
    const ValueId rows = b.Input("index11_rows", TensorType{DType::kI32, {s}});
    Out(b, b.Gather(table, rows));
    if (d != DType::kBool) Out(b, b.Iota({s, t}, 1, d));
    if (d != DType::kBool) Out(b, b.Iota({t, s}, 0, d));
  });
}

void AddPacked(Cases& cases, DType d) {
  cases.Add("packed_" + Name(d), [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId table = b.Weight("tame_table", TensorType{d, {13, 96}});
    const ValueId rows = b.Input("index13_rows", TensorType{DType::kI32, {s}});
    Out(b, b.Gather(table, rows));
    Out(b, b.Dequantise(table));
  });
}

void AddRope(Cases& cases, bool half) {
  cases.Add(half ? "rope_half" : "rope_adjacent", [&](GraphBuilder& b, Dim s, Dim t) {
    std::vector<double> freqs;
    for (int i = 0; i < 12; ++i) freqs.push_back(1.0 / (1 << i));
    const ValueId positions = b.Input("index5000_p", TensorType{DType::kI32, {s}});
    for (const DType d : {DType::kF32, DType::kF16}) {
      const ValueId x = b.Input("tame_" + Name(d), TensorType{d, {s, 3, 32}});
      Out(b, b.Rope(x, positions, {.dim = 24, .freqs = freqs, .half = half, .scale = 1.25}));
    }
    freqs.insert(freqs.end(), {0.25, 0.5, 0.75, 1});
    const ValueId full = b.Input("tame_full", TensorType{DType::kF32, {s, 2, 32}});
    Out(b, b.Rope(full, positions, {.dim = 32, .freqs = freqs, .half = half}));
  });
}

void AddQuantise(Cases& cases) {
  cases.Add("quantise", [&](GraphBuilder& b, Dim s, Dim t) {
    for (const DType d : {DType::kF32, DType::kF16}) {
      const ValueId x = b.Input("tame_" + Name(d), TensorType{d, {s, 96}});
      const auto [q, scale] = b.QuantiseDynamic(x, 32);
      Out(b, q);
      Out(b, scale);
      Out(b, b.Dequantise(q, scale, 32));
      const auto [q6, scale6] = b.QuantiseDynamic(b.Mul(x, b.Scalar(0, d)), 6);
      Out(b, q6);
    }
  });
}

// Chains, shared values, and outputs in every role.
void AddFusion(Cases& cases) {
  cases.Add("fusion", [&](GraphBuilder& b, Dim s, Dim t) {
    const ValueId x = b.Input("tame_x", TensorType{DType::kF32, {s, t}});
    const ValueId y = b.Input("tame_y", TensorType{DType::kF32, {t}});
    const ValueId gate = b.Silu(b.Add(b.Mul(x, y), b.Scalar(0.5)));
    const ValueId shared = b.Tanh(b.Sub(gate, x));
    Out(b, b.Mul(shared, gate));
    Out(b, b.Softmax(shared, 1));
    Out(b, shared);
    Out(b, shared);  // the same value twice
    Out(b, x);       // an input
    Out(b, b.Scalar(3.25));
    Out(b, b.ConstantF32({1, 2, 3, 4, 5, 6, 7}, {7}));
    Out(b, b.Add(b.ConstantF32({1, 2, 3}, {3, 1, 1}), x));
    Out(b, b.Reshape(b.Unary(OpKind::kNeg, x), {t, s}));
    Out(b, b.Reduce(OpKind::kReduceSum, b.Mul(x, x), {.axes = {1}}));
    Out(b, b.Select(b.Binary(OpKind::kGt, x, b.Scalar(0)), x, b.BroadcastTo(y, {s, t})));
    Out(b, b.Emit(OpKind::kReduceSum, {b.Cast(b.Binary(OpKind::kGt, x, b.Scalar(0)), DType::kI32)},
                  {{"axes", std::vector<int64_t>{0}}}));
  });
  cases.Add("long_chain", [&](GraphBuilder& b, Dim s, Dim t) {
    ValueId x = b.Input("tame_x", TensorType{DType::kF32, {t}});
    for (int i = 0; i < 120; ++i)
      x = b.Mul(b.Add(x, b.Scalar(0.125)), b.Scalar(i % 2 ? 0.5 : 1.75));
    Out(b, x);
  });
  cases.Add("large", [&](GraphBuilder& b, Dim s, Dim t) {
    // Many tiles, rows past one tile, and an inner loop longer than a tile.
    const ValueId x = b.Input("tame_x", TensorType{DType::kF32, {t, 3, 700}});
    const ValueId w = b.Input("tame_w", TensorType{DType::kF32, {700}});
    Out(b, b.Add(x, w));
    Out(b, b.Mul(x, b.Scalar(2)));
    Out(b, b.Transpose(x, {2, 1, 0}));
    Out(b, b.Reduce(OpKind::kReduceSum, x, {.axes = {2}}));
    const ValueId bare = b.Input("tame_v", TensorType{DType::kBf16, {9001}});
    Out(b, b.Unary(OpKind::kAbs, bare));
    Out(b, b.Reduce(OpKind::kReduceMax, bare, {.axes = {0}}));
  });
}

}  // namespace

std::vector<OpCase> AllOpCases() {
  Cases cases;
  for (const DType d : kScalars) {
    AddUnary(cases, d);
    AddBinary(cases, d);
    AddCasts(cases, d);
    AddReductions(cases, d);
    AddMovement(cases, d);
    if (IsFloat(d)) AddNorms(cases, d);
    if (IsFloat(d)) AddMatMul(cases, d, d);
  }
  AddMatMul(cases, DType::kI8, DType::kI8);
  AddMatMul(cases, DType::kU8, DType::kI8);
  AddMatMul(cases, DType::kF32, DType::kBf16);
  for (const DType d : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    AddMatMul(cases, DType::kF32, d);
    AddPacked(cases, d);
  }
  AddMatMul(cases, DType::kF16, DType::kQ4_1);
  AddRope(cases, true);
  AddRope(cases, false);
  AddQuantise(cases);
  AddFusion(cases);
  return cases.Done();
}

}  // namespace cuvil::conformance
