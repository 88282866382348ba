#include "compiler/kernel/template_linear.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "compiler/kernel/math.h"
#include "compiler/kernel/template_rows.h"

namespace cuvil::kernel {
namespace {

constexpr int kRowTile = 8;  // rows of one output tile in scratch

bool IsBlockLayout(WeightLayout w) {
  return w == WeightLayout::kQ4_0 || w == WeightLayout::kQ4_1 || w == WeightLayout::kQ8_0;
}

// Emits the inner products of M rows with one half strip (machine.lanes output rows).
class LinearBuilder {
 public:
  LinearBuilder(const LinearParams& p, const Machine& machine)
      : p_(p), machine_(machine), b_(p.name) {
    CUVIL_CHECK(p.k % kBlockK == 0 && p.k > 0, "k must be a multiple of 32");
    lanes_ = std::min(machine.lanes, kStripRows);
    act_stride_ = ActRowBytes(p.act, p.k);
    block_bytes_ = WeightBlockBytes(p.weights);
    out_columns_ = p.strips * kStripRows;
  }

  Kernel Build() {
    DeclareBuffers();
    rows_ = b_.ScalarArg("rows");
    if (p_.epilogue == Epilogue::kHeads) layer_ = b_.ScalarArg("layer");
    if (p_.prefetch) prefetch_ = b_.ScalarArg("prefetch");
    tile_ = b_.Tile();
    if (p_.prologue == Prologue::kActs) {
      act_base_ = b_.Int(0);
    } else {
      const int64_t offset = b_.Scratch(act_stride_ * p_.rows_max);
      act_ = b_.scratch();
      act_base_ = b_.Int(offset);
      norm_scratch_ = p_.prologue == Prologue::kNormRows ? b_.Scratch(p_.k * 4) : 0;
      b_.Once([&] { EmitPrologue(); });
    }
    out_scratch_ = b_.Scratch(int64_t{kRowTile} * out_columns_ * 4);
    w_tile_ = b_.MulImm(tile_, p_.strips * WeightStripBytes(p_.weights, p_.k));
    EmitRowTiles();
    return b_.Finish();
  }

 private:
  void DeclareBuffers() {
    w_ = b_.Buffer("w");
    if (p_.prologue == Prologue::kActs) {
      act_ = b_.Buffer("act");
    } else {
      x_ = b_.Buffer("x");
      if (p_.prologue == Prologue::kNormRows) norm_ = b_.Buffer("norm");
      if (p_.row_indices) row_list_ = b_.Buffer("rows");
    }
    if (p_.bias) bias_ = b_.Buffer("bias");
    if (p_.epilogue == Epilogue::kHeads) {
      q_ = b_.Buffer("q", true);
      kv_ = b_.Buffer("kv", true);
      row_kv_ = b_.Buffer("row_kv");
      rope_ = b_.Buffer("rope");
      if (p_.heads.qk_norm) {
        q_norm_ = b_.Buffer("q_norm");
        k_norm_ = b_.Buffer("k_norm");
      }
    } else {
      out_ = b_.Buffer("out", true);
    }
  }

  void EmitPrologue() {
    b_.For(b_.Int(0), rows_, 1, [&](Value row) {
      Value source_row = row;
      if (p_.row_indices) {
        source_row = b_.Cvt(b_.Load({Scalar::kS32, 1}, row_list_, b_.MulImm(row, 4)), Scalar::kS64);
      }
      RowSource source{x_, b_.MulImm(source_row, p_.k * 4)};
      if (p_.prologue == Prologue::kNormRows) {
        Value normed = b_.Int(norm_scratch_);
        EmitRmsNorm(b_, lanes_, p_.k, p_.norm_eps, source, norm_, b_.Int(0),
                    {b_.scratch(), normed});
        source = {b_.scratch(), normed};
      }
      EmitActRecord(b_, lanes_, p_.k, p_.act, source,
                    {act_, b_.Add(act_base_, b_.MulImm(row, act_stride_))});
    });
  }

  // Rows in tiles of 8 (or fewer when registers are few), then the rest by powers of two.
  void EmitRowTiles() {
    const int largest = machine_.registers >= 32 ? 8 : 4;
    const int64_t mask = ~int64_t{largest - 1};
    Value full = b_.And(rows_, b_.Int(mask));
    b_.For(b_.Int(0), full, largest, [&](Value row) { EmitRowTile(largest, row); });
    Value done = full;
    for (int m = largest / 2; m >= 1; m /= 2) {
      Value bit = b_.And(rows_, b_.Int(m));
      Value at = done;
      b_.If(b_.Cmp(OpCode::kCmpNe, bit, b_.Int(0)), [&] { EmitRowTile(m, at); });
      done = b_.Add(done, bit);
    }
  }

  void EmitRowTile(int m, Value row) {
    Value act_row = b_.Add(act_base_, b_.MulImm(row, act_stride_));
    const int64_t strip_bytes = WeightStripBytes(p_.weights, p_.k);
    b_.For(b_.Int(0), b_.Int(p_.strips), 1, [&](Value strip) {
      Value w_strip = b_.Add(w_tile_, b_.MulImm(strip, strip_bytes));
      Value out_column = b_.AddImm(b_.MulImm(strip, kStripRows * 4), out_scratch_);
      for (int half = 0; half < kStripRows / lanes_; ++half) {
        std::vector<Value> acc = EmitDots(m, w_strip, act_row, half);
        for (int r = 0; r < m; ++r) {
          b_.Store(acc[r], b_.scratch(), out_column,
                   int64_t{r} * out_columns_ * 4 + half * lanes_ * 4);
        }
      }
    });
    EmitEpilogue(m, row);
  }

  std::vector<Value> EmitDots(int m, Value w_strip, Value act_row, int half) {
    std::vector<Value> zero(m, b_.Float(0, F32x(lanes_)));
    const bool ints = p_.act == ActFormat::kA8B32 && IsBlockLayout(p_.weights);
    return b_.For(b_.Int(0), b_.Int(p_.k / kBlockK), 1, zero,
                  [&](Value block, absl::Span<const Value> acc) {
                    Value w = b_.Add(w_strip, b_.MulImm(block, block_bytes_));
                    if (p_.prefetch && half == 0 && m <= 4) {
                      Value ahead = b_.Add(w, prefetch_);
                      for (int64_t line = 0; line < block_bytes_; line += 64)
                        b_.Prefetch(w_, ahead, line);
                    }
                    std::vector<Value> in(acc.begin(), acc.end());
                    if (ints) return EmitIntBlock(m, w, act_row, block, half, in);
                    return EmitFloatBlock(m, w, act_row, block, half, in);
                  });
  }

  // Calls use(j, vector) for the block's weights: vector j holds the unsigned bytes of k =
  // 4j..4j+3. In load order, so that few vectors live at once; integer sums do not mind.
  void ForUnsignedWeights(Value w, int half, const std::function<void(int j, Value q)>& use) {
    const Type t = S32x(lanes_);
    if (p_.weights == WeightLayout::kQ8_0) {
      for (int j = 0; j < 8; ++j) use(j, b_.Load(t, w_, w, j * 64 + half * lanes_ * 4));
      return;
    }
    const Type words{Scalar::kU16, static_cast<uint16_t>(2 * lanes_)};
    Value mask = b_.Int(0x0f0f0f0f, t);
    for (int j = 0; j < 4; ++j) {
      Value packed = b_.Load(t, w_, w, j * 64 + half * lanes_ * 4);
      use(j, b_.And(packed, mask));
      use(j + 4, b_.And(b_.Bitcast(b_.Shr(b_.Bitcast(packed, words), 4), t), mask));
    }
  }

  struct Scales {
    Value d, m;
  };

  // weight = d * byte + m, per output row.
  Scales BlockScales(Value w, int half) {
    const Type f16{Scalar::kF16, static_cast<uint16_t>(lanes_)};
    const int64_t at = (p_.weights == WeightLayout::kQ8_0 ? 512 : 256) + half * lanes_ * 2;
    Value d = b_.Cvt(b_.Load(f16, w_, w, at), Scalar::kF32);
    if (p_.weights == WeightLayout::kQ4_1)
      return {d, b_.Cvt(b_.Load(f16, w_, w, at + 32), Scalar::kF32)};
    const double zero_point = p_.weights == WeightLayout::kQ8_0 ? -128 : -8;
    return {d, b_.Mul(d, b_.Float(zero_point, F32x(lanes_)))};
  }

  std::vector<Value> EmitIntBlock(int m, Value w, Value act_row, Value block, int half,
                                  std::vector<Value> acc) {
    const Type t = S32x(lanes_);
    const int byte_max = p_.weights == WeightLayout::kQ8_0 ? 255 : 15;
    Value a = b_.Add(act_row, b_.MulImm(block, kBlockK));
    Value a_scale = b_.Add(act_row, b_.MulImm(block, 4));
    // One row would be one chain of eight dots; two chains hide their latency, and integers add
    // exactly.
    const int chains = m == 1 ? 2 : 1;
    std::vector<Value> dot(m * chains, b_.Int(0, t));
    int turn = 0;
    ForUnsignedWeights(w, half, [&](int j, Value q) {
      for (int r = 0; r < m; ++r) {
        Value& sum = dot[m == 1 ? turn++ % 2 : r];
        sum = b_.Dot4(sum, q, b_.LoadSplat(t, act_, a, r * act_stride_ + 4 * j), byte_max);
      }
    });
    if (m == 1) dot[0] = b_.Add(dot[0], dot[1]);
    Scales s = BlockScales(w, half);
    const int64_t d_at = p_.k, s_at = p_.k + p_.k / kBlockK * 4;
    for (int r = 0; r < m; ++r) {
      Value da = b_.LoadSplat(F32x(lanes_), act_, a_scale, r * act_stride_ + d_at);
      Value sum = b_.LoadSplat(F32x(lanes_), act_, a_scale, r * act_stride_ + s_at);
      acc[r] = b_.Fma(b_.Cvt(dot[r], Scalar::kF32), b_.Mul(s.d, da), acc[r]);
      acc[r] = b_.Fma(s.m, sum, acc[r]);
    }
    return acc;
  }

  // f32 activations: weights become f32 in registers, a block of 32 sums on its own.
  std::vector<Value> EmitFloatBlock(int m, Value w, Value act_row, Value block, int half,
                                    std::vector<Value> acc) {
    CUVIL_CHECK(p_.act == ActFormat::kF32, "float weights take float activations");
    Value a = b_.Add(act_row, b_.MulImm(block, kBlockK * 4));
    std::vector<Value> sums(m, b_.Float(0, F32x(lanes_)));
    if (IsBlockLayout(p_.weights)) {
      Scales s = BlockScales(w, half);
      const bool bytes = p_.weights == WeightLayout::kQ8_0;
      sums = b_.For(
          b_.Int(0), b_.Int(bytes ? 8 : 4), 1, sums, [&](Value j, absl::Span<const Value> in) {
            std::vector<Value> out(in.begin(), in.end());
            Value packed =
                b_.Load(S32x(lanes_), w_, b_.Add(w, b_.MulImm(j, 64)), half * lanes_ * 4);
            packed = b_.Bitcast(packed, {Scalar::kU32, static_cast<uint16_t>(lanes_)});
            Value a_j = b_.Add(a, b_.MulImm(j, 16));
            for (int high = 0; high < (bytes ? 1 : 2); ++high) {
              for (int i = 0; i < 4; ++i) {
                const int shift = 8 * i + 4 * high;
                Value v = shift == 0 ? packed : b_.Shr(packed, shift);
                v = b_.And(v, b_.Int(bytes ? 255 : 15, b_.type(v)));
                v = b_.Cvt(b_.Bitcast(v, S32x(lanes_)), Scalar::kF32);
                v = b_.Fma(v, s.d, s.m);
                for (int r = 0; r < m; ++r) {
                  out[r] = b_.Fma(
                      v, b_.LoadSplat(F32x(lanes_), act_, a_j, r * act_stride_ + high * 64 + i * 4),
                      out[r]);
                }
              }
            }
            return out;
          });
    } else {
      const Scalar scalar = p_.weights == WeightLayout::kF32   ? Scalar::kF32
                            : p_.weights == WeightLayout::kF16 ? Scalar::kF16
                                                               : Scalar::kBf16;
      const Type t{scalar, static_cast<uint16_t>(lanes_)};
      const int64_t size = ScalarBytes(scalar);
      sums = b_.For(b_.Int(0), b_.Int(kBlockK), 4, sums, [&](Value k0, absl::Span<const Value> in) {
        std::vector<Value> out(in.begin(), in.end());
        Value w_k = b_.Add(w, b_.MulImm(k0, kStripRows * size));
        Value a_k = b_.Add(a, b_.MulImm(k0, 4));
        for (int i = 0; i < 4; ++i) {
          Value v = b_.Cvt(b_.Load(t, w_, w_k, i * kStripRows * size + half * lanes_ * size),
                           Scalar::kF32);
          for (int r = 0; r < m; ++r) {
            out[r] =
                b_.Fma(v, b_.LoadSplat(F32x(lanes_), act_, a_k, r * act_stride_ + i * 4), out[r]);
          }
        }
        return out;
      });
    }
    for (int r = 0; r < m; ++r) acc[r] = b_.Add(acc[r], sums[r]);
    return acc;
  }

  // Runs `body(row number, offset of the row's outputs in scratch)` for the tile's rows.
  void ForRows(int m, Value row, const std::function<void(Value row, Value outputs)>& body) {
    b_.For(b_.Int(0), b_.Int(m), 1, [&](Value i) {
      body(b_.Add(row, i), b_.AddImm(b_.MulImm(i, int64_t{out_columns_} * 4), out_scratch_));
    });
  }

  Value LoadOutput(Value outputs, int64_t column) {
    Value v = b_.Load(F32x(lanes_), b_.scratch(), outputs, column * 4);
    if (!p_.bias) return v;
    Value bias =
        b_.Load(F32x(lanes_), bias_, b_.MulImm(tile_, int64_t{out_columns_} * 4), column * 4);
    return b_.Add(v, bias);
  }

  void EmitEpilogue(int m, Value row) {
    switch (p_.epilogue) {
      case Epilogue::kStore:
      case Epilogue::kResidual:
        return EmitStore(m, row);
      case Epilogue::kGated:
        return EmitGated(m, row);
      case Epilogue::kHeads:
        return EmitHeads(m, row);
    }
  }

  void EmitStore(int m, Value row) {
    ForRows(m, row, [&](Value r, Value outputs) {
      Value at = b_.Add(b_.MulImm(r, p_.n_stride * 4), b_.MulImm(tile_, int64_t{out_columns_} * 4));
      for (int c = 0; c < out_columns_; c += lanes_) {
        Value v = LoadOutput(outputs, c);
        if (p_.epilogue == Epilogue::kResidual)
          v = b_.Add(b_.Load(F32x(lanes_), out_, at, c * 4), v);
        b_.Store(v, out_, at, c * 4);
      }
    });
  }

  void EmitGated(int m, Value row) {
    CUVIL_CHECK(out_columns_ == 64, "a gated tile is 32 gate and 32 up rows");
    const int64_t stride = ActRowBytes(p_.out_act, p_.n_stride);
    ForRows(m, row, [&](Value r, Value outputs) {
      Value record = b_.MulImm(r, stride);
      std::vector<Value> h;
      for (int c = 0; c < 32; c += lanes_) {
        Value gate = LoadOutput(outputs, c), up = LoadOutput(outputs, 32 + c);
        Value act = p_.activation == Activation::kSilu ? Silu(b_, gate) : GeluTanh(b_, gate);
        h.push_back(b_.Mul(act, up));
      }
      EmitActBlock(b_, lanes_, p_.n_stride, p_.out_act, h, {out_, record}, tile_);
    });
  }

  void EmitHeads(int m, Value row);
  void EmitRotatedHead(Value row, Value outputs, bool query);
  void EmitStoreKey(Value row, Value outputs, Value kv_head);
  void EmitStoreValue(Value row, Value outputs, Value kv_head);
  int64_t HeadBytes() const {
    return int64_t{2} * p_.heads.page_tokens * p_.heads.head_dim * ScalarBytes(p_.heads.kv);
  }

  const LinearParams& p_;
  const Machine& machine_;
  Builder b_;
  int lanes_;
  int64_t act_stride_, block_bytes_;
  int out_columns_;
  Buf w_, act_, x_, norm_, row_list_, bias_, out_, q_, kv_, row_kv_, rope_, q_norm_, k_norm_;
  Value rows_, layer_, prefetch_, tile_, act_base_, w_tile_;
  int64_t norm_scratch_ = 0, out_scratch_ = 0;
};

// The head's bias, norm and rotation happen in scratch, in place.
void LinearBuilder::EmitRotatedHead(Value row, Value outputs, bool query) {
  const HeadsParams& h = p_.heads;
  const int hd = h.head_dim;
  if (p_.bias) {
    for (int c = 0; c < hd; c += lanes_)
      b_.Store(LoadOutput(outputs, c), b_.scratch(), outputs, c * 4);
  }
  if (h.qk_norm) {
    EmitRmsNorm(b_, lanes_, hd, h.qk_norm_eps, {b_.scratch(), outputs}, query ? q_norm_ : k_norm_,
                b_.Int(0), {b_.scratch(), outputs});
  }
  if (h.rope == RopeKind::kNone) return;
  Value table = b_.MulImm(row, int64_t{h.rope_dim} * 2 * 4);
  std::vector<Value> rotated;
  for (int c = 0; c < h.rope_dim; c += lanes_) {
    Value x = b_.Load(F32x(lanes_), b_.scratch(), outputs, c * 4);
    Value partner;
    if (h.rope == RopeKind::kAdjacent) {
      std::vector<int16_t> swap;
      for (int i = 0; i < lanes_; ++i) swap.push_back(i ^ 1);
      partner = b_.Shuffle(x, x, swap);
    } else {
      const int other = c < h.rope_dim / 2 ? c + h.rope_dim / 2 : c - h.rope_dim / 2;
      partner = b_.Load(F32x(lanes_), b_.scratch(), outputs, other * 4);
    }
    Value cosine = b_.Load(F32x(lanes_), rope_, table, c * 4);
    Value sine = b_.Load(F32x(lanes_), rope_, table, (h.rope_dim + c) * 4);
    rotated.push_back(b_.Fma(partner, sine, b_.Mul(x, cosine)));
  }
  for (size_t i = 0; i < rotated.size(); ++i)
    b_.Store(rotated[i], b_.scratch(), outputs, static_cast<int64_t>(i) * lanes_ * 4);
}

// Keys lie in sub-tiles of 16 tokens, [dim][token], so that 16 scores come from one vector a
// dimension.
void LinearBuilder::EmitStoreKey(Value row, Value outputs, Value kv_head) {
  const HeadsParams& h = p_.heads;
  const int64_t size = ScalarBytes(h.kv);
  Value pair = b_.MulImm(row, 16);
  Value page = b_.Load(kI64, row_kv_, pair, 0);
  Value slot = b_.Load(kI64, row_kv_, pair, 8);
  Value sub_tile = b_.MulImm(b_.Shr(slot, 4), int64_t{16} * h.head_dim * size);
  Value lane = b_.MulImm(b_.And(slot, b_.Int(15)), size);
  Value base =
      b_.Add(b_.Add(page, layer_), b_.Add(b_.MulImm(kv_head, HeadBytes()), b_.Add(sub_tile, lane)));
  b_.For(b_.Int(0), b_.Int(h.head_dim), 4, [&](Value d) {
    Value from = b_.Add(outputs, b_.MulImm(d, 4));
    Value to = b_.Add(base, b_.MulImm(d, 16 * size));
    for (int i = 0; i < 4; ++i) {
      b_.Store(b_.Cvt(b_.Load(kF32, b_.scratch(), from, i * 4), h.kv), kv_, to, i * 16 * size);
    }
  });
}

void LinearBuilder::EmitStoreValue(Value row, Value outputs, Value kv_head) {
  const HeadsParams& h = p_.heads;
  const int64_t size = ScalarBytes(h.kv);
  Value pair = b_.MulImm(row, 16);
  Value page = b_.Load(kI64, row_kv_, pair, 0);
  Value slot = b_.Load(kI64, row_kv_, pair, 8);
  Value at = b_.Add(b_.Add(page, layer_),
                    b_.Add(b_.MulImm(kv_head, HeadBytes()), b_.MulImm(slot, h.head_dim * size)));
  const int64_t values_at = int64_t{h.page_tokens} * h.head_dim * size;
  // Attention multiplies values of masked keys by 0, also ones that an earlier owner of the page
  // left behind; so nothing infinite or NaN may ever lie in a page. (max and min are false with
  // NaN.)
  const double largest = h.kv == Scalar::kF16 ? 65504 : std::numeric_limits<float>::max();
  Value high = b_.Float(largest, F32x(lanes_)), low = b_.Float(-largest, F32x(lanes_));
  for (int c = 0; c < h.head_dim; c += lanes_) {
    Value v = b_.Min(b_.Max(LoadOutput(outputs, c), low), high);
    b_.Store(b_.Cvt(v, h.kv), kv_, at, values_at + c * size);
  }
}

void LinearBuilder::EmitHeads(int m, Value row) {
  const HeadsParams& h = p_.heads;
  CUVIL_CHECK(out_columns_ == h.head_dim, "a heads tile is one head");
  CUVIL_CHECK(h.rope == RopeKind::kNone ||
                  (h.rope_dim % lanes_ == 0 &&
                   (h.rope == RopeKind::kAdjacent || h.rope_dim % (2 * lanes_) == 0)),
              "rotated dimensions fill vectors");
  Value first_key = b_.Int(h.n_head), first_value = b_.Int(h.n_head + h.n_head_kv);
  Value is_query = b_.Cmp(OpCode::kCmpLt, tile_, first_key);
  Value is_value = b_.Cmp(OpCode::kCmpLe, first_value, tile_);
  Value is_key =
      b_.And(b_.Cmp(OpCode::kCmpLe, first_key, tile_), b_.Cmp(OpCode::kCmpLt, tile_, first_value));
  b_.If(is_query, [&] {
    ForRows(m, row, [&](Value r, Value outputs) {
      EmitRotatedHead(r, outputs, true);
      Value at = b_.Add(b_.MulImm(r, int64_t{h.n_head} * h.head_dim * 4),
                        b_.MulImm(tile_, int64_t{h.head_dim} * 4));
      for (int c = 0; c < h.head_dim; c += lanes_) {
        Value v = b_.Load(F32x(lanes_), b_.scratch(), outputs, c * 4);
        b_.Store(b_.Mul(v, b_.Float(h.q_scale, F32x(lanes_))), q_, at, c * 4);
      }
    });
  });
  b_.If(is_key, [&] {
    ForRows(m, row, [&](Value r, Value outputs) {
      EmitRotatedHead(r, outputs, false);
      EmitStoreKey(r, outputs, b_.Sub(tile_, first_key));
    });
  });
  b_.If(is_value, [&] {
    ForRows(m, row, [&](Value r, Value outputs) {
      EmitStoreValue(r, outputs, b_.Sub(tile_, first_value));
    });
  });
}

}  // namespace

Kernel BuildLinear(const LinearParams& params, const Machine& machine) {
  return LinearBuilder(params, machine).Build();
}

}  // namespace cuvil::kernel
