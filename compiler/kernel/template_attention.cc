#include "compiler/kernel/template_attention.h"

#include <algorithm>

#include "compiler/kernel/math.h"
#include "compiler/kernel/template_rows.h"

namespace cuvil::kernel {
namespace {

// Dimensions, or tokens, an iteration of the two hot loops: hides the loop's own instructions.
constexpr int kUnroll = 4;

constexpr double kMasked = -1e30;  // below any score, and finite so that differences are never NaN

// A running softmax-weighted sum of one query: scratch offsets of {max, sum, values[head_dim]}.
struct Running {
  Buf buf;
  Value offset;
};

class AttentionBuilder {
 public:
  AttentionBuilder(const AttentionParams& p, const Machine& machine)
      : p_(p),
        machine_(machine),
        b_(p.name),
        lanes_(std::min(machine.lanes, 16)),
        group_(p.n_head / p.n_head_kv) {
    CUVIL_CHECK(p.n_head % p.n_head_kv == 0, "query heads divide into groups");
    CUVIL_CHECK(p.head_dim % 32 == 0, "head_dim is a multiple of 32");
    CUVIL_CHECK(p.page_tokens % 32 == 0 || p.page_tokens == 16, "pages are made of sub-tiles");
    running_bytes_ = (2 + p.head_dim) * 4;
    size_ = ScalarBytes(p.kv);
  }

  Kernel Build() {
    q_ = b_.Buffer("q");
    kv_ = b_.Buffer("kv");
    tables_ = b_.Buffer("tables");
    items_ = b_.Buffer("items");
    out_ = b_.Buffer("out", true);
    partial_ = b_.Buffer("partial", true);
    layer_ = b_.ScalarArg("layer");
    Value layer_window = b_.ScalarArg("window");
    Value layer_sinks = b_.ScalarArg("sinks");
    const int queries = p_.row_block * group_;
    scores_ = b_.Scratch(int64_t{queries} * kKeyBlock * 4);
    block_ = b_.Scratch(queries * running_bytes_);
    running_ = b_.Scratch(queries * running_bytes_);
    Value item = b_.MulImm(b_.Tile(), kWorkItemFields * 8);
    auto field = [&](int i) { return b_.Load(kI64, items_, item, i * 8); };
    row_ = field(0);
    Value rows = field(1);
    table_ = field(2);
    position_ = field(3);
    head_ = field(4);
    first_ = field(5);
    end_ = field(6);
    slot_ = field(7);
    Value window = field(8);
    Value local = b_.Cmp(OpCode::kCmpLt, layer_window, window);
    window_ = b_.Select(local, layer_window, window);
    sinks_ = b_.Select(local, layer_sinks, field(9));
    b_.If(b_.Cmp(OpCode::kCmpEq, rows, b_.Int(1)), [&] { EmitItem(1); });
    if (p_.row_block > 1) {
      b_.If(b_.Cmp(OpCode::kCmpNe, rows, b_.Int(1)), [&] { EmitItem(p_.row_block); });
    }
    return b_.Finish();
  }

  Kernel BuildMerge() {
    partial_ = b_.Buffer("partial");
    items_ = b_.Buffer("items");
    out_ = b_.Buffer("out", true);
    running_ = b_.Scratch(group_ * running_bytes_);
    Value item = b_.MulImm(b_.Tile(), 4 * 8);
    row_ = b_.Load(kI64, items_, item, 0);
    head_ = b_.Load(kI64, items_, item, 8);
    Value first = b_.Load(kI64, items_, item, 16);
    Value count = b_.Load(kI64, items_, item, 24);
    ForQueries(group_, [&](Value q) { EmitClear(RunningAt(q)); });
    b_.For(first, b_.Add(first, count), 1, [&](Value slot) {
      ForQueries(group_, [&](Value q) {
        Value at = b_.Add(b_.MulImm(slot, AttentionSlotBytes(p_)), b_.MulImm(q, running_bytes_));
        EmitFold({partial_, at}, RunningAt(q));
      });
    });
    EmitResult(1);
    return b_.Finish();
  }

 private:
  Running RunningAt(Value query) {
    return {b_.scratch(), b_.AddImm(b_.MulImm(query, running_bytes_), running_)};
  }
  Running BlockAt(Value query) {
    return {b_.scratch(), b_.AddImm(b_.MulImm(query, running_bytes_), block_)};
  }
  Value ScoresAt(int query) { return b_.Int(scores_ + int64_t{query} * kKeyBlock * 4); }
  // Work per query that is not a hot loop stays a loop, which keeps the code small.
  void ForQueries(int queries, const std::function<void(Value)>& body) {
    b_.For(b_.Int(0), b_.Int(queries), 1, body);
  }
  Value RowOf(Value query) { return group_ == 1 ? query : b_.Div(query, b_.Int(group_)); }
  Type Vec() const { return F32x(lanes_); }

  void EmitClear(Running r) {
    b_.Store(b_.Float(kMasked), r.buf, r.offset, 0);
    b_.Store(b_.Float(0), r.buf, r.offset, 4);
    for (int c = 0; c < p_.head_dim; c += lanes_)
      b_.Store(b_.Float(0, Vec()), r.buf, r.offset, 8 + c * 4);
  }

  // into = into (+) part, the softmax-weighted sum of both.
  void EmitFold(Running part, Running into) {
    Value m0 = b_.Load(kF32, into.buf, into.offset, 0),
          m1 = b_.Load(kF32, part.buf, part.offset, 0);
    Value l0 = b_.Load(kF32, into.buf, into.offset, 4),
          l1 = b_.Load(kF32, part.buf, part.offset, 4);
    Value m = b_.Max(m0, m1);
    Value c0 = Exp(b_, b_.Sub(m0, m)), c1 = Exp(b_, b_.Sub(m1, m));
    b_.Store(m, into.buf, into.offset, 0);
    b_.Store(b_.Fma(l1, c1, b_.Mul(l0, c0)), into.buf, into.offset, 4);
    Value v0 = b_.Splat(c0, lanes_), v1 = b_.Splat(c1, lanes_);
    for (int c = 0; c < p_.head_dim; c += lanes_) {
      Value a = b_.Mul(b_.Load(Vec(), into.buf, into.offset, 8 + c * 4), v0);
      b_.Store(b_.Fma(b_.Load(Vec(), part.buf, part.offset, 8 + c * 4), v1, a), into.buf,
               into.offset, 8 + c * 4);
    }
  }

  void EmitItem(int rows) {
    const int queries = rows * group_;
    ForQueries(queries, [&](Value q) { EmitClear(RunningAt(q)); });
    // Without sinks, blocks before the first row's window hold nothing visible.
    Value visible_from = b_.Max(b_.Sub(b_.AddImm(position_, 1), window_), b_.Int(0));
    Value no_sinks = b_.Cmp(OpCode::kCmpEq, sinks_, b_.Int(0));
    Value start = b_.Select(no_sinks, b_.Max(first_, b_.Shr(visible_from, 8)), first_);
    b_.For(start, end_, 1, [&](Value block) {
      Value base = b_.MulImm(block, kKeyBlock);
      // Between the sinks and the first row's window nothing is visible, and pages may be gone.
      Value sink = b_.Cmp(OpCode::kCmpLt, base, sinks_);
      Value recent = b_.Cmp(OpCode::kCmpLt, visible_from, b_.AddImm(base, kKeyBlock));
      b_.If(b_.Or(sink, recent), [&] { EmitBlock(rows, base); });
    });
    b_.If(b_.Cmp(OpCode::kCmpLt, slot_, b_.Int(0)), [&] { EmitResult(rows); });
    b_.If(b_.Cmp(OpCode::kCmpLe, b_.Int(0), slot_), [&] {
      Value to = b_.MulImm(slot_, AttentionSlotBytes(p_));
      ForQueries(group_, [&](Value q) {
        Running from = RunningAt(q);
        Value at = b_.Add(to, b_.MulImm(q, running_bytes_));
        for (int i = 0; i < 2; ++i)
          b_.Store(b_.Load(kF32, from.buf, from.offset, i * 4), partial_, at, i * 4);
        for (int c = 0; c < p_.head_dim; c += lanes_) {
          b_.Store(b_.Load(Vec(), from.buf, from.offset, 8 + c * 4), partial_, at, 8 + c * 4);
        }
      });
    });
  }

  // Scores, weights and values of one key block, folded into the running results.
  void EmitBlock(int rows, Value base) {
    const int queries = rows * group_;
    Value last = b_.AddImm(position_, rows);  // one past the last visible key
    Value keys = b_.Min(b_.Sub(last, base), b_.Int(kKeyBlock));
    // Whole groups of 16: what the value loop steps by. The mask zeroes the surplus.
    Value padded = b_.And(b_.AddImm(keys, 15), b_.Int(~int64_t{15}));
    EmitScores(queries, base, padded);
    EmitSoftmax(rows, base, padded);
    EmitValues(queries, base, padded);
    ForQueries(queries, [&](Value q) { EmitFold(BlockAt(q), RunningAt(q)); });
  }

  // Byte offset of this head's K in the page of token `token`.
  Value HeadBase(Value token) {
    const int shift = p_.page_tokens == 16 ? 4 : p_.page_tokens == 32 ? 5 : 6;
    Value page = b_.Load(kI64, tables_, b_.Add(table_, b_.MulImm(b_.Shr(token, shift), 8)));
    return b_.Add(b_.Add(page, layer_),
                  b_.MulImm(head_, KvHeadBytes(p_.page_tokens, p_.head_dim, p_.kv)));
  }

  // Offset in "q", row-major [row][head][dim], of the group's first head in the item's row r.
  Value QueryRow(int r) {
    Value row = b_.MulImm(b_.AddImm(row_, r), int64_t{p_.n_head} * p_.head_dim * 4);
    return b_.Add(row, b_.MulImm(head_, int64_t{group_} * p_.head_dim * 4));
  }

  void EmitScores(int queries, Value base, Value keys) {
    const int step = std::min(p_.page_tokens, 32);  // tokens an iteration: within one page
    const int vectors = step / lanes_;
    const int chunk = std::max(1, (machine_.registers >= 32 ? 24 : 12) / vectors);
    for (int q0 = 0; q0 < queries; q0 += chunk) {
      const int n = std::min(chunk, queries - q0);
      // One address a row: the heads of a group lie side by side.
      std::vector<Value> query_row(p_.row_block);
      for (int r = q0 / group_; r <= (q0 + n - 1) / group_; ++r) query_row[r] = QueryRow(r);
      b_.For(b_.Int(0), keys, step, [&](Value t) {
        Value token = b_.Add(base, t);
        const int64_t sub_tile = int64_t{16} * p_.head_dim * size_;
        Value in_page = b_.And(token, b_.Int(p_.page_tokens - 1));
        Value k = b_.Add(HeadBase(token), b_.MulImm(b_.Shr(in_page, 4), sub_tile));
        std::vector<Value> zero(n * vectors, b_.Float(0, Vec()));
        std::vector<Value> s = b_.For(
            b_.Int(0), b_.Int(p_.head_dim), kUnroll, zero,
            [&](Value d, absl::Span<const Value> in) {
              std::vector<Value> acc(in.begin(), in.end());
              Value k_d = b_.Add(k, b_.MulImm(d, 16 * size_));
              Value q_d = b_.MulImm(d, 4);
              for (int i = 0; i < kUnroll; ++i) {
                std::vector<Value> keys_v;
                for (int v = 0; v < vectors; ++v) {
                  const int token_in = v * lanes_;
                  const int64_t at =
                      token_in / 16 * sub_tile + (token_in % 16) * size_ + i * 16 * size_;
                  keys_v.push_back(b_.Cvt(
                      b_.Load({p_.kv, static_cast<uint16_t>(lanes_)}, kv_, k_d, at), Scalar::kF32));
                }
                for (int q = 0; q < n; ++q) {
                  Value x = b_.LoadSplat(Vec(), q_, b_.Add(query_row[(q0 + q) / group_], q_d),
                                         ((q0 + q) % group_ * p_.head_dim + i) * 4);
                  for (int v = 0; v < vectors; ++v)
                    acc[q * vectors + v] = b_.Fma(keys_v[v], x, acc[q * vectors + v]);
                }
              }
              return acc;
            });
        for (int q = 0; q < n; ++q) {
          Value to = b_.Add(ScoresAt(q0 + q), b_.MulImm(t, 4));
          for (int v = 0; v < vectors; ++v)
            b_.Store(s[q * vectors + v], b_.scratch(), to, v * lanes_ * 4);
        }
      });
    }
  }

  // Lane mask of the keys at `token` that a query at `position` sees.
  Value Visible(Value token, Value position) {
    const Type t{Scalar::kS32, static_cast<uint16_t>(lanes_)};
    auto splat = [&](Value v) { return b_.Splat(b_.Cvt(v, Scalar::kS32), lanes_); };
    Value at = b_.Add(splat(token), b_.Iota(t));
    Value causal = b_.Cmp(OpCode::kCmpLe, at, splat(position));
    Value recent = b_.Cmp(OpCode::kCmpLt, splat(b_.Max(b_.Sub(position, window_), b_.Int(-1))), at);
    Value sink = b_.Cmp(OpCode::kCmpLt, at, splat(sinks_));
    return b_.And(causal, b_.Or(recent, sink));
  }

  // Scores become weights exp(s - max), 0 where masked; the block's max and sum are stored.
  void EmitSoftmax(int rows, Value base, Value keys) {
    ForQueries(rows * group_, [&](Value q) {
      Value position = b_.Add(position_, RowOf(q));
      Value scores = b_.AddImm(b_.MulImm(q, kKeyBlock * 4), scores_);
      std::vector<Value> m =
          b_.For(b_.Int(0), keys, lanes_, {b_.Float(kMasked, Vec())},
                 [&](Value t, absl::Span<const Value> in) {
                   Value at = b_.Add(scores, b_.MulImm(t, 4));
                   Value s = b_.Select(Visible(b_.Add(base, t), position),
                                       b_.Load(Vec(), b_.scratch(), at), b_.Float(kMasked, Vec()));
                   b_.Store(s, b_.scratch(), at);
                   return std::vector<Value>{b_.Max(in[0], s)};
                 });
      Value max = b_.Reduce(OpCode::kReduceMax, m[0]);
      Value max_v = b_.Splat(max, lanes_);
      Value masked = b_.Float(kMasked, Vec());
      std::vector<Value> l = b_.For(
          b_.Int(0), keys, lanes_, {b_.Float(0, Vec())}, [&](Value t, absl::Span<const Value> in) {
            Value at = b_.Add(scores, b_.MulImm(t, 4));
            Value s = b_.Load(Vec(), b_.scratch(), at);
            Value e = b_.Select(b_.Cmp(OpCode::kCmpLt, masked, s), Exp(b_, b_.Sub(s, max_v)),
                                b_.Float(0, Vec()));
            b_.Store(e, b_.scratch(), at);
            return std::vector<Value>{b_.Add(in[0], e)};
          });
      Running block = BlockAt(q);
      b_.Store(max, block.buf, block.offset, 0);
      b_.Store(b_.Reduce(OpCode::kReduceAdd, l[0]), block.buf, block.offset, 4);
    });
  }

  void EmitValues(int queries, Value base, Value keys) {
    const bool wide = machine_.registers >= 32;
    const int budget = wide ? 24 : 10;
    // More queries at once save more conversions of values than more dimensions save splats.
    const int vectors = std::min(p_.head_dim / lanes_, wide && queries <= 6 ? 4 : 2);
    const int chunk = std::max(1, budget / vectors);
    const int64_t values_at = int64_t{p_.page_tokens} * p_.head_dim * size_;
    for (int q0 = 0; q0 < queries; q0 += chunk) {
      const int n = std::min(chunk, queries - q0);
      for (int c = 0; c < p_.head_dim; c += vectors * lanes_) {
        std::vector<Value> zero(n * vectors, b_.Float(0, Vec()));
        std::vector<Value> acc =
            b_.For(b_.Int(0), keys, 16, zero, [&](Value t, absl::Span<const Value> in) {
              Value token = b_.Add(base, t);
              Value in_page = b_.And(token, b_.Int(p_.page_tokens - 1));
              Value v0 = b_.Add(HeadBase(token), b_.MulImm(in_page, p_.head_dim * size_));
              Value p0 = b_.MulImm(t, 4);
              return b_.For(
                  b_.Int(0), b_.Int(16), kUnroll, {in.begin(), in.end()},
                  [&](Value i, absl::Span<const Value> inner) {
                    std::vector<Value> a(inner.begin(), inner.end());
                    Value v_i = b_.Add(v0, b_.MulImm(i, p_.head_dim * size_));
                    Value p_i = b_.Add(p0, b_.MulImm(i, 4));
                    for (int u = 0; u < kUnroll; ++u) {
                      std::vector<Value> values;
                      for (int v = 0; v < vectors; ++v) {
                        const int64_t at =
                            values_at + (int64_t{u} * p_.head_dim + c + v * lanes_) * size_;
                        values.push_back(
                            b_.Cvt(b_.Load({p_.kv, static_cast<uint16_t>(lanes_)}, kv_, v_i, at),
                                   Scalar::kF32));
                      }
                      for (int q = 0; q < n; ++q) {
                        Value w = b_.LoadSplat(Vec(), b_.scratch(), p_i,
                                               scores_ + int64_t{q0 + q} * kKeyBlock * 4 + u * 4);
                        for (int v = 0; v < vectors; ++v)
                          a[q * vectors + v] = b_.Fma(values[v], w, a[q * vectors + v]);
                      }
                    }
                    return a;
                  });
            });
        for (int q = 0; q < n; ++q) {
          for (int v = 0; v < vectors; ++v) {
            b_.Store(acc[q * vectors + v], b_.scratch(), b_.Int(block_ + (q0 + q) * running_bytes_),
                     8 + (c + v * lanes_) * 4);
          }
        }
      }
    }
  }

  // Normalises the running sums and writes them as blocks of the rows' records.
  void EmitResult(int rows) {
    const int64_t k = int64_t{p_.n_head} * p_.head_dim;
    ForQueries(rows * group_, [&](Value q) {
      Running r = RunningAt(q);
      Value row = RowOf(q);
      Value inverse = b_.Splat(b_.Div(b_.Float(1), b_.Load(kF32, r.buf, r.offset, 4)), lanes_);
      Value record = b_.MulImm(b_.Add(row_, row), ActRowBytes(p_.out_act, k));
      Value head = b_.Add(b_.MulImm(head_, group_), b_.Sub(q, b_.MulImm(row, group_)));
      b_.For(b_.Int(0), b_.Int(p_.head_dim / kBlockK), 1, [&](Value c) {
        Value from = b_.Add(r.offset, b_.MulImm(c, kBlockK * 4));
        std::vector<Value> values;
        for (int i = 0; i < kBlockK; i += lanes_)
          values.push_back(b_.Mul(b_.Load(Vec(), r.buf, from, 8 + i * 4), inverse));
        Value block = b_.Add(b_.MulImm(head, p_.head_dim / kBlockK), c);
        EmitActBlock(b_, lanes_, k, p_.out_act, values, {out_, record}, block);
      });
    });
  }

  const AttentionParams& p_;
  const Machine& machine_;
  Builder b_;
  const int lanes_, group_;
  int64_t running_bytes_, size_;
  Buf q_, kv_, tables_, items_, out_, partial_;
  Value layer_, window_, sinks_, row_, table_, position_, head_, first_, end_, slot_;
  int64_t scores_ = 0, block_ = 0, running_ = 0;
};

}  // namespace

int AttentionRowBlock(const AttentionParams& p, const Machine& machine) {
  const int group = p.n_head / p.n_head_kv;
  // With 12 queries, converting keys and values is a seventh of the work; with 6 it is a quarter.
  const int queries = machine.registers >= 32 ? 12 : 3;
  return std::clamp(queries / group, 1, 4);
}

int64_t AttentionSlotBytes(const AttentionParams& p) {
  return int64_t{p.n_head / p.n_head_kv} * (2 + p.head_dim) * 4;
}

Kernel BuildAttention(const AttentionParams& params, const Machine& machine) {
  return AttentionBuilder(params, machine).Build();
}

Kernel BuildAttentionMerge(const AttentionParams& params, const Machine& machine) {
  return AttentionBuilder(params, machine).BuildMerge();
}

}  // namespace cuvil::kernel
