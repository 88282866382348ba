#include "compiler/kernel/template_rows.h"

#include "base/checked.h"

namespace cuvil::kernel {

void EmitRmsNorm(Builder& b, int lanes, int64_t k, double eps, RowSource from, Buf weight,
                 Value weight_offset, RowSource to) {
  CUVIL_CHECK(k % lanes == 0, "rows fill vectors");
  const Type t = F32x(lanes);
  std::vector<Value> sum = b.For(b.Int(0), b.Int(k * 4), lanes * 4, {b.Float(0, t)},
                                 [&](Value at, absl::Span<const Value> acc) {
                                   Value x = b.Load(t, from.buf, b.Add(from.offset, at));
                                   return std::vector<Value>{b.Fma(x, x, acc[0])};
                                 });
  Value mean = b.Div(b.Reduce(OpCode::kReduceAdd, sum[0]), b.Float(static_cast<double>(k)));
  Value scale = b.Splat(b.Div(b.Float(1), b.Sqrt(b.Add(mean, b.Float(eps)))), lanes);
  b.For(b.Int(0), b.Int(k * 4), lanes * 4, [&](Value at) {
    Value x = b.Load(t, from.buf, b.Add(from.offset, at));
    Value w = b.Load(t, weight, b.Add(weight_offset, at));
    b.Store(b.Mul(b.Mul(x, scale), w), to.buf, b.Add(to.offset, at));
  });
}

void EmitActBlock(Builder& b, int lanes, int64_t k, ActFormat format,
                  const std::vector<Value>& values, RowSource to, Value block) {
  if (format == ActFormat::kF32) {
    Value at = b.Add(to.offset, b.MulImm(block, kBlockK * 4));
    for (size_t i = 0; i < values.size(); ++i)
      b.Store(values[i], to.buf, at, static_cast<int64_t>(i) * lanes * 4);
    return;
  }
  Value largest = b.Abs(values[0]);
  for (size_t i = 1; i < values.size(); ++i) largest = b.Max(largest, b.Abs(values[i]));
  Value max = b.Reduce(OpCode::kReduceMax, largest);
  Value d = b.Mul(max, b.Float(1.0 / 127));
  Value positive = b.Cmp(OpCode::kCmpLt, b.Float(0), max);
  // A block of zeros has scale 0 and inverse 0; the guard keeps the division finite.
  Value safe = b.Select(positive, max, b.Float(1));
  Value inverse = b.Select(positive, b.Div(b.Float(127), safe), b.Float(0));
  Value q_at = b.Add(to.offset, b.MulImm(block, kBlockK));
  Value sum;
  for (size_t i = 0; i < values.size(); ++i) {
    Value scaled = b.Unary(OpCode::kRound, b.Mul(values[i], b.Splat(inverse, lanes)));
    Value q = b.Cvt(scaled, Scalar::kS32);
    sum = i == 0 ? q : b.Add(sum, q);
    b.Store(b.Cvt(q, Scalar::kS8), to.buf, q_at, static_cast<int64_t>(i) * lanes);
  }
  Value total = b.Cvt(b.Reduce(OpCode::kReduceAdd, sum), Scalar::kF32);
  Value scale_at = b.Add(to.offset, b.MulImm(block, 4));
  b.Store(d, to.buf, scale_at, k);
  b.Store(b.Mul(d, total), to.buf, scale_at, k + k / kBlockK * 4);
}

void EmitActRecord(Builder& b, int lanes, int64_t k, ActFormat format, RowSource from,
                   RowSource to) {
  b.For(b.Int(0), b.Int(k / kBlockK), 1, [&](Value block) {
    Value at = b.Add(from.offset, b.MulImm(block, kBlockK * 4));
    std::vector<Value> values;
    for (int c = 0; c < kBlockK; c += lanes)
      values.push_back(b.Load(F32x(lanes), from.buf, at, c * 4));
    EmitActBlock(b, lanes, k, format, values, to, block);
  });
}

Kernel BuildRowsToActs(const RowsToActsParams& p, const Machine& machine) {
  Builder b(p.name);
  const int lanes = std::min(machine.lanes, 16);
  Buf x = b.Buffer("x");
  Buf norm;
  if (p.norm) norm = b.Buffer("norm");
  Buf out = b.Buffer("out", true);
  Value row = b.Tile();
  RowSource from{x, b.MulImm(row, p.k * 4)};
  if (p.norm) {
    Value scratch = b.Int(b.Scratch(p.k * 4));
    EmitRmsNorm(b, lanes, p.k, p.norm_eps, from, norm, b.Int(0), {b.scratch(), scratch});
    from = {b.scratch(), scratch};
  }
  EmitActRecord(b, lanes, p.k, p.act, from, {out, b.MulImm(row, ActRowBytes(p.act, p.k))});
  return b.Finish();
}

Kernel BuildNormAdd(const std::string& name, int64_t k, double eps, const Machine& machine) {
  Builder b(name);
  const int lanes = std::min(machine.lanes, 16);
  Buf y = b.Buffer("y");
  Buf norm = b.Buffer("norm");
  Buf x = b.Buffer("x", true);
  Value at = b.MulImm(b.Tile(), k * 4);
  Value scratch = b.Int(b.Scratch(k * 4));
  EmitRmsNorm(b, lanes, k, eps, {y, at}, norm, b.Int(0), {b.scratch(), scratch});
  b.For(b.Int(0), b.Int(k * 4), lanes * 4, [&](Value i) {
    Value to = b.Add(at, i);
    b.Store(b.Add(b.Load(F32x(lanes), x, to), b.Load(F32x(lanes), b.scratch(), b.Add(scratch, i))),
            x, to);
  });
  return b.Finish();
}

Kernel BuildEmbed(const std::string& name, WeightLayout layout, int64_t k, double scale,
                  const Machine& machine) {
  Builder b(name);
  Buf w = b.Buffer("w");
  Buf ids = b.Buffer("ids");
  Buf out = b.Buffer("out", true);
  Value row = b.Tile();
  Value id = b.Cvt(b.Load({Scalar::kS32, 1}, ids, b.MulImm(row, 4)), Scalar::kS64);
  Value lane = b.And(id, b.Int(kStripRows - 1));
  Value strip = b.MulImm(b.Shr(id, 4), WeightStripBytes(layout, k));
  Value to = b.MulImm(row, k * 4);
  const Value factor = b.Float(scale);
  b.For(b.Int(0), b.Int(k / kBlockK), 1, [&](Value block) {
    Value at = b.Add(strip, b.MulImm(block, WeightBlockBytes(layout)));
    Value to_block = b.Add(to, b.MulImm(block, kBlockK * 4));
    const bool bytes = layout == WeightLayout::kQ8_0;
    if (bytes || layout == WeightLayout::kQ4_0 || layout == WeightLayout::kQ4_1) {
      Value scales = b.Add(at, b.MulImm(lane, 2));
      Value d = b.Cvt(b.Load({Scalar::kF16, 1}, w, scales, bytes ? 512 : 256), Scalar::kF32);
      Value m = layout == WeightLayout::kQ4_1
                    ? b.Cvt(b.Load({Scalar::kF16, 1}, w, scales, 288), Scalar::kF32)
                    : b.Mul(d, b.Float(bytes ? -128 : -8));
      b.For(b.Int(0), b.Int(bytes ? 8 : 4), 1, [&](Value j) {
        Value source = b.Add(at, b.Add(b.MulImm(j, 64), b.MulImm(lane, 4)));
        Value to_j = b.Add(to_block, b.MulImm(j, 16));
        for (int i = 0; i < 4; ++i) {
          Value byte = b.Cvt(b.Load({Scalar::kU8, 1}, w, source, i), Scalar::kS32);
          for (int high = 0; high < (bytes ? 1 : 2); ++high) {
            Value q = bytes ? byte : high ? b.Shr(byte, 4) : b.And(byte, b.Int(15, S32x(1)));
            Value v = b.Fma(b.Cvt(q, Scalar::kF32), d, m);
            b.Store(b.Mul(v, factor), out, to_j, high * 64 + i * 4);
          }
        }
      });
    } else {
      const Scalar s = layout == WeightLayout::kF32   ? Scalar::kF32
                       : layout == WeightLayout::kF16 ? Scalar::kF16
                                                      : Scalar::kBf16;
      const int64_t size = ScalarBytes(s);
      Value source = b.Add(at, b.MulImm(lane, size));
      b.For(b.Int(0), b.Int(kBlockK), 1, [&](Value i) {
        Value v =
            b.Cvt(b.Load({s, 1}, w, b.Add(source, b.MulImm(i, kStripRows * size))), Scalar::kF32);
        b.Store(b.Mul(v, factor), out, b.Add(to_block, b.MulImm(i, 4)));
      });
    }
  });
  return b.Finish();
}

}  // namespace cuvil::kernel
