#include "compiler/kernel/template_sample.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "compiler/kernel/math.h"

namespace cuvil::kernel {
namespace {

struct Emitter {
  Builder& b;
  int lanes;
  Buf x, stats;

  int vectors() const { return kSampleStep / lanes; }
  Type floats() const { return F32x(lanes); }
  Type ints() const { return S32x(lanes); }

  // Folds the vectors of one step as one vector of 64 lanes: i with i + 32, ...
  template <typename Combine>
  Value Fold(std::vector<Value> parts, OpCode reduce, Combine combine) const {
    while (parts.size() > 1) {
      const size_t half = parts.size() / 2;
      for (size_t i = 0; i < half; ++i) parts[i] = combine(parts[i], parts[i + half]);
      parts.resize(half);
    }
    return b.Reduce(reduce, parts[0]);
  }

  // Stores max and has_nan of x[begin, end) and returns max.
  Value Largest(Value begin, Value end, Value record) const {
    const int n = vectors();
    const Value one = b.Int(1, ints());
    std::vector<Value> init(n, b.Float(-std::numeric_limits<double>::infinity(), floats()));
    init.resize(2 * n, b.Int(0, ints()));
    std::vector<Value> parts =
        b.For(begin, end, kSampleStep * 4, init, [&](Value at, absl::Span<const Value> carried) {
          std::vector<Value> next(carried.begin(), carried.end());
          for (int i = 0; i < n; ++i) {
            Value v = b.Load(floats(), x, at, i * lanes * 4);
            // A NaN compares false, so the first operand never wins as one.
            next[i] = b.Max(v, carried[i]);
            next[n + i] = b.Select(b.Cmp(OpCode::kCmpNe, v, v), one, carried[n + i]);
          }
          return next;
        });
    const auto max = [&](Value l, Value r) { return b.Max(l, r); };
    const auto either = [&](Value l, Value r) { return b.Or(l, r); };
    Value largest = Fold({parts.begin(), parts.begin() + n}, OpCode::kReduceMax, max);
    b.Store(largest, stats, record, offsetof(SampleRecord, max));
    b.Store(Fold({parts.begin() + n, parts.end()}, OpCode::kReduceMax, either), stats, record,
            offsetof(SampleRecord, has_nan));
    return largest;
  }

  // Stores the sum of exp((x - largest) * scale) over [begin, end).
  void Sum(Value begin, Value end, Value largest, Value scale, Value record, int64_t field) const {
    const int n = vectors();
    const Value subtract = b.Splat(largest, lanes), times = b.Splat(scale, lanes);
    std::vector<Value> parts =
        b.For(begin, end, kSampleStep * 4, std::vector<Value>(n, b.Float(0, floats())),
              [&](Value at, absl::Span<const Value> carried) {
                std::vector<Value> next;
                for (int i = 0; i < n; ++i) {
                  Value v = b.Load(floats(), x, at, i * lanes * 4);
                  next.push_back(b.Add(carried[i], Exp(b, b.Mul(b.Sub(v, subtract), times))));
                }
                return next;
              });
    const auto add = [&](Value l, Value r) { return b.Add(l, r); };
    b.Store(Fold(std::move(parts), OpCode::kReduceAdd, add), stats, record, field);
  }
};

}  // namespace

Kernel BuildSampleBlocks(const std::string& name, const Machine& machine) {
  Builder b(name);
  const Buf x = b.Buffer("x");
  const Buf stats = b.Buffer("stats", true);
  const Emitter e{b, std::min(machine.lanes, 16), x, stats};
  const Value bytes = b.MulImm(b.ScalarArg("columns"), 4);
  const Value sums = b.ScalarArg("sums");
  std::vector<Value> scales;
  for (const char* scale : {"scale0", "scale1"}) {
    scales.push_back(b.Bitcast(b.Cvt(b.ScalarArg(scale), Scalar::kS32), kF32));
  }
  constexpr int64_t kTileBytes = int64_t{4} * kSampleBlock * kSampleBlocksPerTile;
  const Value first = b.MulImm(b.Tile(), kTileBytes);
  const Value last = b.Min(b.AddImm(first, kTileBytes), bytes);
  b.For(first, last, kSampleBlock * 4, [&](Value begin) {
    Value end = b.Min(b.AddImm(begin, kSampleBlock * 4), bytes);
    static_assert(kSampleBlock * 4 == 64 * kSampleRecordBytes);
    Value record = b.Shr(begin, 6);
    Value largest = e.Largest(begin, end, record);
    constexpr int64_t kFields[] = {offsetof(SampleRecord, sum0), offsetof(SampleRecord, sum1)};
    for (int s = 0; s < 2; ++s) {
      b.If(b.Cmp(OpCode::kCmpLt, b.Int(s), sums),
           [&] { e.Sum(begin, end, largest, scales[s], record, kFields[s]); });
    }
  });
  return b.Finish();
}

}  // namespace cuvil::kernel
