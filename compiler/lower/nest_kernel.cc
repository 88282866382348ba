// Turns a nest into kernel IR. See nest.h for the shape of the loops.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "compiler/kernel/verify.h"
#include "compiler/lower/nest.h"
#include "compiler/lower/packed.h"

namespace cuvil::lower {
namespace {

using kernel::OpCode;
using kernel::Type;
using kernel::Value;

// A tile of at least this many element steps pays for its start.
constexpr int64_t kTileWork = 4096;

bool IsArg(Fold fold) { return fold == Fold::kArgMax || fold == Fold::kArgMin; }

class NestWriter {
 public:
  NestWriter(const Nest& nest, const kernel::Machine& machine, absl::Span<const ir::Symbol> symbols)
      : nest_(nest), symbols_(symbols), b_(nest.name) {
    lanes_max_ = machine.lanes;
  }

  absl::StatusOr<NestKernel> Write() {
    for (size_t i = 0; i < nest_.buffers.size(); ++i) {
      buffers_.push_back(b_.Buffer(absl::StrCat("b", i), nest_.buffers[i].written));
    }
    CollectDims();
    ChooseVectorLoop();
    counters_.resize(nest_.loops());
    RETURN_IF_ERROR(PlanTiles());
    WriteDims();
    WriteTile();
    out_.kernel = b_.Finish();
    if (absl::Status s = kernel::Verify(out_.kernel); !s.ok()) {
      return absl::InternalError(absl::StrCat("lowering made a wrong kernel: ", s.message()));
    }
    return std::move(out_);
  }

 private:
  size_t kept() const { return nest_.kept.size(); }
  bool KeptVector() const { return vector_loop_ >= 0 && vector_loop_ < static_cast<int>(kept()); }
  bool ReducedVector() const { return vector_loop_ >= static_cast<int>(kept()); }
  const ir::Dim& Extent(size_t loop) const {
    return loop < kept() ? nest_.kept[loop] : nest_.reduced[loop - kept()];
  }

  // ---- Extents and strides: polynomials of the launch scalars, computed once per tile ----

  void CollectDims() {
    for (const ir::Dim& d : nest_.kept) dims_.push_back(d);
    for (const ir::Dim& d : nest_.reduced) dims_.push_back(d);
    for (const Reduction& r : nest_.reductions) {
      CollectExpr(r.value);
      CollectExpr(r.other);
    }
    for (const Store& s : nest_.stores) {
      CollectExpr(s.value);
      CollectAffine(s.at);
      accesses_.push_back({&s.at, s.reduced ? 2 : 1});
    }
  }

  void CollectAffine(const Affine& a) {
    dims_.push_back(a.offset);
    for (const ir::Dim& d : a.coefs) dims_.push_back(d);
  }

  void CollectExpr(const ExprPtr& e) {
    if (!e || !seen_.insert(e.get()).second) return;
    if (Info(ValueDType(*e)).bytes == 8) wide_ = true;
    if (e->kind == Expr::Kind::kLoad || e->kind == Expr::Kind::kCounter) CollectAffine(e->at);
    if (e->kind == Expr::Kind::kLoad) {
      accesses_.push_back({&e->at, 2});
      dims_.push_back(e->indirect_stride);
      dims_.push_back(e->indirect_extent);
    }
    for (const ExprPtr& arg : e->args) CollectExpr(arg);
  }

  std::string Key(const ir::Dim& dim) const { return ir::ToString(dim, symbols_); }

  void WriteDims() {
    std::set<int> used;
    for (const ir::Dim& d : dims_) {
      for (const ir::DimTerm& t : d.terms()) {
        for (const ir::SymbolId s : t.symbols) used.insert(s.value);
      }
    }
    std::map<int, Value> values;
    for (const int s : used) {
      values[s] = b_.ScalarArg(symbols_[s].name);
      out_.symbols.push_back(s);
    }
    for (const ir::Dim& d : dims_) {
      auto [at, is_new] = dim_values_.try_emplace(Key(d));
      if (is_new) at->second = WritePolynomial(d, values);
    }
  }

  Value WritePolynomial(const ir::Dim& dim, const std::map<int, Value>& values) {
    Value sum;
    for (const ir::DimTerm& term : dim.terms()) {
      Value product;
      for (const ir::SymbolId s : term.symbols) {
        product = product.valid() ? b_.Mul(product, values.at(s.value)) : values.at(s.value);
      }
      product = product.valid() ? b_.MulImm(product, term.coef) : b_.Int(term.coef);
      sum = sum.valid() ? b_.Add(sum, product) : product;
    }
    return sum.valid() ? sum : b_.Int(0);
  }

  Value DimValue(const ir::Dim& dim) {
    if (const std::optional<int64_t> c = dim.constant()) return b_.Int(*c);
    return dim_values_.at(Key(dim));
  }

  // ---- Choices ----

  int64_t HighestExtent(size_t loop) const {
    const absl::StatusOr<ir::DimRange> range = ir::RangeOf(Extent(loop), symbols_);
    return range.ok() ? std::max<int64_t>(range->max, 1) : 1;
  }

  int Votes(size_t loop) const {
    int votes = 0;
    for (const auto& [at, weight] : accesses_) votes += at->coefs[loop].is(1) ? weight : 0;
    return votes;
  }

  void ChooseVectorLoop() {
    bool has_arg = false;
    for (const Reduction& r : nest_.reductions) has_arg |= IsArg(r.fold);
    const int last_kept = static_cast<int>(kept()) - 1;
    const int last = static_cast<int>(nest_.loops()) - 1;
    const bool can_reduce = !nest_.reduced.empty() && !has_arg;
    const int kept_votes = last_kept >= 0 ? Votes(last_kept) : -1;
    vector_loop_ = can_reduce && Votes(last) >= kept_votes ? last : last_kept;
    lanes_ = wide_ ? lanes_max_ / 2 : lanes_max_;
    if (vector_loop_ < 0 || HighestExtent(vector_loop_) < lanes_) {
      vector_loop_ = -1;
      lanes_ = 1;
    }
  }

  absl::Status PlanTiles() {
    int64_t work = 1;  // per row
    const auto grow = [&](size_t loop) {
      work = HighestExtent(loop) > kTileWork / work ? kTileWork : work * HighestExtent(loop);
    };
    for (size_t i = kept(); i < nest_.loops(); ++i) grow(i);
    outer_ = kept();
    if (KeptVector() && kept() == 1) {
      // One long loop: a tile is a run of elements, whole vectors except at the end.
      chunked_ = true;
      out_.rows = nest_.kept[0];
      out_.rows_per_tile = AlignUp<int64_t>(std::max<int64_t>(kTileWork / work, 1), lanes_);
      return absl::OkStatus();
    }
    if (KeptVector()) grow(--outer_);
    ASSIGN_OR_RETURN(out_.rows, ir::Product(absl::MakeConstSpan(nest_.kept).subspan(0, outer_)));
    out_.rows_per_tile = std::max<int64_t>(kTileWork / work, 1);
    dims_.push_back(out_.rows);
    return absl::OkStatus();
  }

  // ---- Loops over kept points ----

  void WriteTile() {
    Value begin = b_.MulImm(b_.Tile(), out_.rows_per_tile);
    Value end = b_.Min(b_.AddImm(begin, out_.rows_per_tile), DimValue(out_.rows));
    if (chunked_) return WriteRange(begin, end);
    if (out_.rows.is(1)) return WriteRow(b_.Int(0));
    b_.For(begin, end, 1, [&](Value row) { WriteRow(row); });
  }

  void WriteRow(Value row) {
    for (size_t i = outer_; i-- > 0;) {
      if (i == 0) {
        counters_[0] = row;
        break;
      }
      Value extent = DimValue(nest_.kept[i]);
      Value quotient = b_.Div(row, extent);
      counters_[i] = b_.Sub(row, b_.Mul(quotient, extent));
      row = quotient;
    }
    if (KeptVector()) return WriteRange(b_.Int(0), DimValue(nest_.kept.back()));
    WritePoint(1);
  }

  // The vectorised kept loop.
  void WriteRange(Value begin, Value end) {
    Value middle = WholeVectors(begin, end);
    b_.For(begin, middle, lanes_, [&](Value i) {
      counters_[vector_loop_] = i;
      WritePoint(lanes_);
    });
    b_.For(middle, end, 1, [&](Value i) {
      counters_[vector_loop_] = i;
      WritePoint(1);
    });
  }

  // Where the last whole vector after `begin` ends.
  Value WholeVectors(Value begin, Value end) {
    return b_.Add(begin, b_.And(b_.Sub(end, begin), b_.Int(-int64_t{lanes_})));
  }

  // One point, or `lanes` neighbouring ones, of the kept loops.
  void WritePoint(int lanes) {
    results_.clear();
    for (const Reduction& r : nest_.reductions) results_.push_back(WriteReduction(r, lanes));
    memo_.clear();
    bool any_reduced = false;
    for (const Store& s : nest_.stores) {
      any_reduced |= s.reduced;
      if (!s.reduced) WriteStore(s, lanes);
    }
    if (!any_reduced) return;
    OverReduced(0, lanes, [&](int n) {
      for (const Store& s : nest_.stores) {
        if (s.reduced) WriteStore(s, n);
      }
    });
  }

  // ---- Loops over reduced points ----

  void OverReduced(size_t depth, int lanes, const std::function<void(int)>& body) {
    const size_t loop = kept() + depth;
    if (loop == nest_.loops()) {
      memo_.clear();
      return body(lanes);
    }
    Value end = DimValue(Extent(loop));
    const auto run = [&](Value i, int n) {
      counters_[loop] = i;
      OverReduced(depth + 1, n, body);
    };
    if (static_cast<int>(loop) != vector_loop_) {
      return b_.For(b_.Int(0), end, 1, [&](Value i) { run(i, lanes); });
    }
    Value middle = WholeVectors(b_.Int(0), end);
    b_.For(b_.Int(0), middle, lanes_, [&](Value i) { run(i, lanes_); });
    b_.For(middle, end, 1, [&](Value i) { run(i, 1); });
  }

  using Carried = std::vector<Value>;

  Carried Start(const Reduction& r, int lanes) {
    const DType d = ValueDType(*r.value);
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const bool low = r.fold == Fold::kMax || r.fold == Fold::kArgMax;
    const bool high = r.fold == Fold::kMin || r.fold == Fold::kArgMin;
    // An infinity saturates to the lowest or highest integer.
    const double start = low ? -kInf : high ? kInf : r.fold == Fold::kProduct ? 1 : 0;
    Carried c = {Constant(b_, start, d, lanes)};
    if (IsArg(r.fold)) c.push_back(b_.Int(0, {Scalar::kS32, static_cast<uint16_t>(lanes)}));
    return c;
  }

  Value Combine(Fold fold, DType d, Value a, Value x) {
    switch (fold) {
      case Fold::kProduct:
        return b_.Mul(a, x);
      case Fold::kMax:
        return Larger(b_, a, x, d);
      case Fold::kMin:
        return Smaller(b_, a, x, d);
      case Fold::kMaxOrNumber:
        return b_.Max(x, a);  // x > a ? x : a
      default:
        return b_.Add(a, x);
    }
  }

  Carried Step(const Reduction& r, Carried carried, int lanes) {
    const DType d = ValueDType(*r.value);
    memo_.clear();
    Value x = Eval(r.value, lanes);
    if (r.fold == Fold::kDot) {
      Value y = Eval(r.other, lanes);
      if (Info(d).is_float) return {b_.Fma(x, y, carried[0])};
      return {b_.Add(carried[0], b_.Mul(x, y))};
    }
    if (!IsArg(r.fold)) return {Combine(r.fold, d, carried[0], x)};
    Value beats = r.fold == Fold::kArgMax ? Less(b_, carried[0], x, d) : Less(b_, x, carried[0], d);
    if (Info(d).is_float) {
      // The first NaN wins for good.
      Value best_is_number = b_.Cmp(OpCode::kCmpEq, carried[0], carried[0]);
      beats = b_.And(best_is_number, b_.Or(beats, b_.Cmp(OpCode::kCmpNe, x, x)));
    }
    Value at = nest_.reduced.empty() ? b_.Int(0) : counters_[kept()];
    at = b_.Splat(b_.Cvt(at, Scalar::kS32), lanes);
    return {b_.Select(beats, x, carried[0]), b_.Select(beats, at, carried[1])};
  }

  // Folds over the reduced loops from `depth` on. With a vector loop among them, `carried` holds a
  // vector of partial results and then a scalar for the elements after the last whole vector.
  Carried FoldOver(const Reduction& r, size_t depth, Carried carried, int lanes) {
    const size_t loop = kept() + depth;
    if (loop == nest_.loops()) return Step(r, carried, lanes);
    Value end = DimValue(Extent(loop));
    if (static_cast<int>(loop) != vector_loop_) {
      return b_.For(b_.Int(0), end, 1, carried, [&](Value i, absl::Span<const Value> c) {
        counters_[loop] = i;
        return FoldOver(r, depth + 1, {c.begin(), c.end()}, lanes);
      });
    }
    Value middle = WholeVectors(b_.Int(0), end);
    const auto part = [&](Value from, Value to, int n, Value start) {
      return b_.For(from, to, n, {start}, [&](Value i, absl::Span<const Value> c) {
        counters_[loop] = i;
        return FoldOver(r, depth + 1, {c[0]}, n);
      })[0];
    };
    Value vector = part(b_.Int(0), middle, lanes_, carried[0]);
    return {vector, part(middle, end, 1, carried[1])};
  }

  Value WriteReduction(const Reduction& r, int lanes) {
    if (!ReducedVector()) return FoldOver(r, 0, Start(r, lanes), lanes).back();
    const Carried folded = FoldOver(r, 0, {Start(r, lanes_)[0], Start(r, 1)[0]}, lanes);
    return Combine(r.fold, ValueDType(*r.value), FoldLanes(r, folded[0]), folded[1]);
  }

  // Lanes pairwise: lane i with lane i + n/2, and so on.
  Value FoldLanes(const Reduction& r, Value v) {
    for (int n = b_.type(v).lanes; n > 1; n /= 2) {
      std::vector<int16_t> low, high;
      for (int i = 0; i < n / 2; ++i) {
        low.push_back(static_cast<int16_t>(i));
        high.push_back(static_cast<int16_t>(i + n / 2));
      }
      v = Combine(r.fold, ValueDType(*r.value), b_.Shuffle(v, v, low), b_.Shuffle(v, v, high));
    }
    return v;
  }

  // ---- Values ----

  // Whether neighbouring lanes can differ.
  bool Varies(const ExprPtr& e) {
    if (vector_loop_ < 0) return false;
    if (const auto it = varies_.find(e.get()); it != varies_.end()) return it->second;
    bool varies = e->kind == Expr::Kind::kReduction && KeptVector();
    if (e->kind == Expr::Kind::kLoad || e->kind == Expr::Kind::kCounter) {
      varies = !e->at.coefs[vector_loop_].is(0);
    }
    for (const ExprPtr& arg : e->args) varies |= Varies(arg);
    return varies_[e.get()] = varies;
  }

  Value Eval(const ExprPtr& e, int lanes) {
    if (lanes > 1 && !Varies(e)) return b_.Splat(Eval(e, 1), lanes);
    const auto key = std::pair(e.get(), lanes);
    if (const auto it = memo_.find(key); it != memo_.end()) return it->second;
    const Value v = EvalNew(*e, lanes);
    memo_[key] = v;
    return v;
  }

  Value EvalNew(const Expr& e, int lanes) {
    switch (e.kind) {
      case Expr::Kind::kLoad:
        return IsBlock(e.dtype) ? LoadPacked(e, lanes) : Load(e, lanes);
      case Expr::Kind::kCounter:
        return Counter(e.at, lanes);
      case Expr::Kind::kReduction:
        return results_[e.index];
      case Expr::Kind::kOp:
        break;
    }
    std::vector<Value> args;
    for (const ExprPtr& arg : e.args) args.push_back(Eval(arg, lanes));
    return e.code(b_, args);
  }

  // The form at the current counters; for vectors, of the first lane.
  Value At(const Affine& a) {
    Value sum = a.offset.is(0) ? Value{} : DimValue(a.offset);
    for (size_t i = 0; i < a.coefs.size(); ++i) {
      if (a.coefs[i].is(0)) continue;
      Value term = a.coefs[i].is(1) ? counters_[i] : b_.Mul(counters_[i], DimValue(a.coefs[i]));
      sum = sum.valid() ? b_.Add(sum, term) : term;
    }
    return sum.valid() ? sum : b_.Int(0);
  }

  Type Wide(int lanes) { return {Scalar::kS64, static_cast<uint16_t>(lanes)}; }

  // 0, coef, 2 coef, ... along the vector loop.
  Value LaneSteps(const Affine& a, int lanes) {
    Value iota = b_.Iota(Wide(lanes));
    if (a.coefs[vector_loop_].is(1)) return iota;
    return b_.Mul(iota, b_.Splat(DimValue(a.coefs[vector_loop_]), lanes));
  }

  Value Counter(const Affine& a, int lanes) {
    if (lanes == 1) return At(a);
    return b_.Add(b_.Splat(At(a), lanes), LaneSteps(a, lanes));
  }

  // The gathered row's distance, kept inside the tensor.
  Value Indirect(const Expr& e, int lanes) {
    Value index = Eval(e.args[0], lanes);
    Value last = b_.AddImm(DimValue(e.indirect_extent), -1);
    index = b_.Max(b_.Min(index, b_.Splat(last, lanes)), b_.Int(0, Wide(lanes)));
    return b_.Mul(index, b_.Splat(DimValue(e.indirect_stride), lanes));
  }

  struct Address {
    Value base;   // element number, of the first lane when `steps` is not set
    Value steps;  // per lane, when lanes are not neighbours
  };

  Address AddressOf(const Expr& e, int lanes) {
    Address a{At(e.at), {}};
    const bool indirect = !e.args.empty();
    const bool per_lane = lanes > 1 && indirect && Varies(e.args[0]);
    if (indirect && !per_lane) a.base = b_.Add(a.base, Indirect(e, 1));
    if (lanes == 1 || (!per_lane && e.at.coefs[vector_loop_].is(1))) return a;
    a.steps = LaneSteps(e.at, lanes);
    if (per_lane) a.steps = b_.Add(a.steps, Indirect(e, lanes));
    return a;
  }

  Value Load(const Expr& e, int lanes) {
    const Type t{MemoryScalar(e.dtype), static_cast<uint16_t>(lanes)};
    const Address a = AddressOf(e, lanes);
    Value at = b_.MulImm(a.base, Info(e.dtype).bytes);
    const kernel::Buf buf = buffers_[e.buffer];
    Value v = a.steps.valid() ? b_.Gather(t, buf, at, a.steps) : b_.Load(t, buf, at);
    if (e.dtype == DType::kBool) return b_.Cmp(OpCode::kCmpNe, v, b_.Int(0, t));
    return b_.Cvt(v, ComputeScalar(e.dtype));
  }

  // An element of a row of GGUF blocks, decoded as base/blocks.h does.
  Value LoadPacked(const Expr& e, int lanes) {
    const uint16_t n = static_cast<uint16_t>(lanes);
    const Address a = AddressOf(e, lanes);
    Value element = b_.Splat(a.base, lanes);
    if (lanes > 1) element = b_.Add(element, a.steps.valid() ? a.steps : b_.Iota(Wide(lanes)));
    return DecodePacked(b_, e.dtype, buffers_[e.buffer], element);
  }

  void WriteStore(const Store& s, int lanes) {
    const DType d = ValueDType(*s.value);
    Value v = b_.Cvt(Eval(s.value, lanes), MemoryScalar(d));
    const int size = Info(d).bytes;
    const kernel::Buf buf = buffers_[s.buffer];
    Value at = b_.MulImm(At(s.at), size);
    if (lanes == 1 || s.at.coefs[vector_loop_].is(1)) return b_.Store(v, buf, at);
    Value step = b_.MulImm(DimValue(s.at.coefs[vector_loop_]), size);
    for (int i = 0; i < lanes; ++i) {
      b_.Store(b_.Extract(v, i), buf, at);
      if (i + 1 < lanes) at = b_.Add(at, step);
    }
  }

  const Nest& nest_;
  absl::Span<const ir::Symbol> symbols_;
  Builder b_;
  NestKernel out_;
  std::vector<kernel::Buf> buffers_;

  std::vector<ir::Dim> dims_;
  std::map<std::string, Value> dim_values_;
  std::vector<std::pair<const Affine*, int>> accesses_;  // with their weight in the vote
  std::set<const Expr*> seen_;
  bool wide_ = false;  // some value has 8 bytes

  int lanes_max_ = 1, lanes_ = 1;
  int vector_loop_ = -1;
  size_t outer_ = 0;  // kept loops that rows of a tile run over
  bool chunked_ = false;

  std::vector<Value> counters_;
  std::vector<Value> results_;
  std::map<std::pair<const Expr*, int>, Value> memo_;  // of the current straight-line body
  std::map<const Expr*, bool> varies_;
};

}  // namespace

absl::StatusOr<NestKernel> BuildNestKernel(const Nest& nest, const kernel::Machine& machine,
                                           absl::Span<const ir::Symbol> symbols) {
  return NestWriter(nest, machine, symbols).Write();
}

}  // namespace cuvil::lower
