#include "tests/conformance/kernel_generator.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "base/half.h"

namespace cuvil::conformance {
namespace {

using kernel::Buf;
using kernel::Builder;
using kernel::IsFloat;
using kernel::IsSigned;
using kernel::kI64;
using kernel::OpCode;
using kernel::Scalar;
using kernel::ScalarBytes;
using kernel::Type;
using kernel::Value;

constexpr Scalar kScalars[] = {Scalar::kI1,  Scalar::kS8,   Scalar::kU8,  Scalar::kS16,
                               Scalar::kU16, Scalar::kS32,  Scalar::kU32, Scalar::kS64,
                               Scalar::kF16, Scalar::kBf16, Scalar::kF32, Scalar::kF64};
constexpr int kOpCount = 0
#define X(code, name, doc) +1
    CUVIL_KERNEL_OPS(X)
#undef X
    ;
constexpr int64_t kSlotSpace =
    1 << 17;  // bytes of one tile's output; results past it go unrecorded

bool IsSmallFloat(Scalar s) { return s == Scalar::kF16 || s == Scalar::kBf16; }
bool IsInt(Scalar s) { return s != Scalar::kI1 && !IsFloat(s); }
bool Computes(Scalar s) { return s != Scalar::kI1 && !IsSmallFloat(s); }

double SpecialFloat(std::mt19937_64& random) {
  static constexpr double kValues[] = {0.0,
                                       -0.0,
                                       1,
                                       -1,
                                       0.5,
                                       -0.5,
                                       1.5,
                                       2.5,
                                       -2.5,
                                       3.25,
                                       127.5,
                                       -128,
                                       255,
                                       65504,
                                       65520,
                                       1e-8,
                                       0x1p-24,
                                       0x1p-149,
                                       -0x1p-140,
                                       0x1p-126,
                                       0x1p-1074,
                                       16777217,
                                       2147483648.0,
                                       -2147483648.0,
                                       1e10,
                                       1e19,
                                       3e38,
                                       -3.4e38,
                                       1e300,
                                       std::numeric_limits<double>::infinity(),
                                       -std::numeric_limits<double>::infinity(),
                                       std::numeric_limits<double>::quiet_NaN(),
                                       1.00390625,
                                       1.01171875,
                                       1.00048828125};
  return kValues[random() % std::size(kValues)];
}

// The bits of one value of type `s`.
uint64_t MakeValue(Scalar s, std::mt19937_64& random) {
  const uint64_t kind = random() % 4;
  if (!IsFloat(s)) {
    static constexpr uint64_t kValues[] = {
        0,      1,      2,          3,          ~0ull,      0x80,       0x7f,
        0x8000, 0x7fff, 0x80000000, 0x7fffffff, 1ull << 63, ~0ull >> 1, 0x8080808080808080};
    if (kind == 0) return kValues[random() % std::size(kValues)];
    if (kind == 1) return static_cast<uint64_t>(static_cast<int64_t>(random() % 64) - 32);
    return random();
  }
  if (kind == 3) return random();
  const double v = kind == 0 ? SpecialFloat(random)
                             : std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -60);
  switch (s) {
    case Scalar::kF16:
      return F32ToF16(static_cast<float>(v));
    case Scalar::kBf16:
      return F32ToBf16(static_cast<float>(v));
    case Scalar::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(v));
    default:
      return std::bit_cast<uint64_t>(v);
  }
}

class Generator {
 public:
  Generator(std::string name, uint64_t seed) : b_(std::move(name)), random_(seed) {
    x_ = b_.Buffer("x");
    y_ = b_.Buffer("y", true);
    count_ = b_.ScalarArg("count");
    flag_ = b_.ScalarArg("flag");
    scratch_ = b_.Scratch(1024);
    zero_ = b_.Int(0);
    tile_ = b_.Tile();
    base_ = b_.Mul(tile_, b_.Int(kSlotSpace));
    pool_.emplace_back();
  }

  uint64_t Below(uint64_t n) { return random_() % n; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }

  // Fresh or earlier operands, and every result, may be recorded with this probability.
  void set_record_percent(int percent) { record_percent_ = percent; }

  Value Remember(Value v) {
    pool_.back()[Key(b_.type(v))].push_back(v);
    if (Chance(record_percent_)) Record(v);
    return v;
  }

  void Record(Value v) {
    const Value stored = b_.type(v).scalar == Scalar::kI1 ? b_.Cvt(v, Scalar::kU8) : v;
    const Type t = b_.type(stored);
    if (next_ + t.bytes() > kSlotSpace) return;
    b_.Store(stored, y_, base_, next_);
    slots_.push_back({v, t, next_});
    next_ += t.bytes() + static_cast<int64_t>(Below(2));
  }

  // An operand: an earlier value of the type, values from memory, or a constant.
  Value Operand(Type t) {
    if (Chance(60)) {
      for (size_t scope = pool_.size(); scope-- > 0;) {
        const std::vector<Value>& values = pool_[scope][Key(t)];
        if (!values.empty() && Chance(70)) return values[Below(values.size())];
      }
    }
    if (Chance(15)) return Constant(t);
    return Fresh(t);
  }

  Value Constant(Type t) {
    if (t.scalar == Scalar::kI1) return b_.Int(static_cast<int64_t>(Below(2)), t);
    if (IsFloat(t.scalar)) {
      return b_.Float(Chance(50) ? SpecialFloat(random_)
                                 : static_cast<double>(static_cast<int64_t>(random_())) * 0x1p-61,
                      t);
    }
    const uint64_t bits = MakeValue(t.scalar, random_);
    const int shift = 64 - 8 * ScalarBytes(t.scalar);  // the value its type can hold
    return b_.Int(IsSigned(t.scalar) ? static_cast<int64_t>(bits << shift) >> shift
                                     : static_cast<int64_t>(bits << shift >> shift),
                  t);
  }

  Value Fresh(Type t) {
    if (t.scalar == Scalar::kI1) {
      const Type bytes{Scalar::kS8, t.lanes};
      return b_.Cmp(OpCode::kCmpLt, Fresh(bytes), Fresh(bytes));
    }
    const int64_t size = ScalarBytes(t.scalar);
    const int64_t region = static_cast<int64_t>(t.scalar) * kRegionBytes;
    const int64_t at = region + size * static_cast<int64_t>(Below(kRegionBytes / 8 - 80));
    // Tiles see different values: tile t is shifted by t elements.
    return b_.Load(t, x_, b_.MulImm(tile_, size), at);
  }

  // One op giving (for compares and reductions: taking) type `t`; false when the op has no such
  // form.
  bool Apply(OpCode code, Type t);
  void ApplyRandom(int depth);
  void Loop(int depth);
  void Branch(int depth);
  void UseScratch();
  void FillScratchOnce();

  Generated Finish() {
    return {.kernel = b_.Finish(), .slots = std::move(slots_), .tile_bytes = kSlotSpace};
  }

  Type RandomType() {
    static constexpr int kLanes[] = {1, 1, 4, 4, 8, 8, 8, 16, 16, 2, 32, 3, 64, 12};
    return {kScalars[Below(std::size(kScalars))],
            static_cast<uint16_t>(kLanes[Below(std::size(kLanes))])};
  }

 private:
  static int Key(Type t) { return static_cast<int>(t.scalar) * 128 + t.lanes; }

  Value NoNan(Value v) {  // NaN bits are unspecified: they may not reach integers
    if (IsSmallFloat(b_.type(v).scalar)) {
      return b_.Cvt(NoNan(b_.Cvt(v, Scalar::kF32)), b_.type(v).scalar);
    }
    if (!IsFloat(b_.type(v).scalar)) return v;
    return b_.Select(b_.Cmp(OpCode::kCmpNe, v, v), b_.Float(1, b_.type(v)), v);
  }

  Value Divide(OpCode code, Type t) {
    if (IsFloat(t.scalar)) return b_.Div(Operand(t), Operand(t));
    const Value odd = b_.Or(Operand(t), b_.Int(1, t));
    const Value a =
        b_.Shr(Operand(t), IsSigned(t.scalar) ? 1 : 0);  // never the value -1 overflows on
    return code == OpCode::kDiv ? b_.Div(a, odd) : b_.Rem(a, odd);
  }

  Value ToIntInRange(Value v, Scalar to) {
    const Type t = b_.type(v);
    const int bits = 8 * ScalarBytes(to) - (IsSigned(to) ? 1 : 0);
    const double end = std::ldexp(1.0, bits);
    const double high = t.scalar == Scalar::kF32 ? std::nextafter(static_cast<float>(end), 0.0f)
                                                 : std::nextafter(end, 0.0);
    v = b_.Min(v, b_.Float(high, t));
    return b_.Cvt(b_.Max(v, b_.Float(IsSigned(to) ? -end : 0, t)), to);
  }

  bool ApplyConvert(Type t) {
    bool any = false;
    for (const Scalar from : kScalars) {
      if (from == t.scalar) continue;
      const Type ft{from, t.lanes};
      if (IsSmallFloat(from) || IsSmallFloat(t.scalar)) {
        const Scalar other = IsSmallFloat(from) ? t.scalar : from;
        if (other != Scalar::kF32) continue;
        Remember(b_.Cvt(Operand(ft), t.scalar));
      } else if (from == Scalar::kI1) {
        if (!IsInt(t.scalar)) continue;
        Remember(b_.Cvt(Operand(ft), t.scalar));
      } else if (t.scalar == Scalar::kI1) {
        continue;
      } else if (IsFloat(from) && IsInt(t.scalar)) {
        Remember(ToIntInRange(Operand(ft), t.scalar));
      } else {
        Remember(b_.Cvt(Operand(ft), t.scalar));
      }
      any = true;
    }
    return any;
  }

  bool ApplyBitcast(Type t) {
    if (t.scalar == Scalar::kI1) return false;
    bool any = false;
    for (const Scalar from : kScalars) {
      const int size = ScalarBytes(from);
      if (from == Scalar::kI1 || from == t.scalar || t.bytes() % size != 0) continue;
      if (t.bytes() / size > 64) continue;
      const Type ft{from, static_cast<uint16_t>(t.bytes() / size)};
      Remember(b_.Bitcast(NoNan(Operand(ft)), t));
      any = true;
    }
    return any;
  }

  bool ApplyDot4(Type t) {
    if (t.scalar != Scalar::kS32 || (t.lanes & (t.lanes - 1)) != 0) return false;
    static constexpr uint32_t kMasks[] = {0x01010101, 0x0f0f0f0f, 0x7f7f7f7f, 0x80808080,
                                          0xffffffff};
    static constexpr int kBounds[] = {1, 15, 127, 128, 255};
    for (int i = 0; i < 5; ++i) {
      const Value mask = b_.Int(static_cast<int32_t>(kMasks[i]), t);
      const Value a = Chance(30) ? mask : b_.And(Operand(t), mask);
      const Value w = Chance(30) ? b_.Int(static_cast<int32_t>(0x80808080), t) : Operand(t);
      Remember(b_.Dot4(Operand(t), a, w, kBounds[i]));
    }
    return true;
  }

  void ApplyShuffle(Type t) {
    static constexpr int kSourceLanes[] = {1, 2, 4, 8, 16, 32};
    const Type from{t.scalar, Chance(60) ? t.lanes : static_cast<uint16_t>(kSourceLanes[Below(6)])};
    std::vector<int16_t> table;
    const int kind = static_cast<int>(Below(3));
    for (int i = 0; i < t.lanes; ++i) {
      const int lane = kind == 0 ? static_cast<int>(Below(2 * from.lanes))
                                 : (kind == 1 ? i ^ 1 : i / 2 + (i % 2) * from.lanes);
      table.push_back(static_cast<int16_t>(lane % (2 * from.lanes)));
    }
    Remember(b_.Shuffle(Operand(from), Operand(from), std::move(table)));
  }

  void ApplyGather(Type t) {
    const Scalar index = kScalars[1 + Below(7)];  // any integer
    const Type it{index, t.lanes};
    Value i = b_.And(Operand(it), b_.Int(63, it));
    if (IsSigned(index)) i = b_.Sub(i, b_.Int(20, it));
    const int64_t region = static_cast<int64_t>(t.scalar) * kRegionBytes;
    Remember(b_.Gather(t, x_, b_.Int(region), i, 32 * ScalarBytes(t.scalar)));
  }

  Builder b_;
  std::mt19937_64 random_;
  Buf x_, y_;
  Value count_, flag_, zero_, tile_, base_;
  int64_t scratch_ = 0;
  std::vector<std::map<int, std::vector<Value>>> pool_;  // by scope, then by type
  std::vector<Slot> slots_;
  int64_t next_ = 0;
  int record_percent_ = 100;
};

bool Generator::Apply(OpCode code, Type t) {
  const Scalar s = t.scalar;
  switch (code) {
    case OpCode::kConst:
      Remember(Constant(t));
      return true;
    case OpCode::kScalarArg:
      Remember(b_.AddImm(count_, 1));
      return true;
    case OpCode::kTile:
      Remember(b_.AddImm(tile_, 1));
      return true;
    case OpCode::kIota:
      if (!IsInt(s)) return false;
      Remember(b_.Iota(t));
      return true;
    case OpCode::kSplat:
      Remember(b_.Splat(Operand({s, 1}), t.lanes));
      return true;
    case OpCode::kLoad:
      if (s == Scalar::kI1) return false;
      Remember(Fresh(t));
      return true;
    case OpCode::kGather:
      if (s == Scalar::kI1) return false;
      ApplyGather(t);
      return true;
    case OpCode::kPrefetch:
      b_.Prefetch(x_, Operand(kI64), static_cast<int64_t>(Below(1 << 20)));
      return true;
    case OpCode::kStore:
      UseScratch();
      return true;
    case OpCode::kAdd:
    case OpCode::kSub:
    case OpCode::kMul:
    case OpCode::kMin:
    case OpCode::kMax: {
      if (!Computes(s)) return false;
      const Value a = Operand(t), c = Operand(t);
      Remember(code == OpCode::kAdd   ? b_.Add(a, c)
               : code == OpCode::kSub ? b_.Sub(a, c)
               : code == OpCode::kMul ? b_.Mul(a, c)
               : code == OpCode::kMin ? b_.Min(a, c)
                                      : b_.Max(a, c));
      return true;
    }
    case OpCode::kDiv:
    case OpCode::kRem:
      if (!Computes(s) || (code == OpCode::kRem && IsFloat(s))) return false;
      Remember(Divide(code, t));
      return true;
    case OpCode::kFma:
      if (!Computes(s) || !IsFloat(s)) return false;
      Remember(b_.Fma(Operand(t), Operand(t), Operand(t)));
      return true;
    case OpCode::kAnd:
    case OpCode::kOr:
    case OpCode::kXor: {
      if (IsFloat(s)) return false;
      const Value a = Operand(t), c = Operand(t);
      Remember(code == OpCode::kAnd  ? b_.And(a, c)
               : code == OpCode::kOr ? b_.Or(a, c)
                                     : b_.Xor(a, c));
      return true;
    }
    case OpCode::kShl:
    case OpCode::kShr: {
      if (!IsInt(s)) return false;
      const int bits = static_cast<int>(Below(8 * ScalarBytes(s)));
      Remember(code == OpCode::kShl ? b_.Shl(Operand(t), bits) : b_.Shr(Operand(t), bits));
      return true;
    }
    case OpCode::kNeg:
    case OpCode::kAbs:
      if (!Computes(s) || (code == OpCode::kAbs && !IsFloat(s) && !IsSigned(s))) return false;
      Remember(b_.Unary(code, Operand(t)));
      return true;
    case OpCode::kSqrt:
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kTrunc:
    case OpCode::kRound:
      if (!Computes(s) || !IsFloat(s)) return false;
      Remember(b_.Unary(code, Operand(t)));
      return true;
    case OpCode::kCmpEq:
    case OpCode::kCmpNe:
    case OpCode::kCmpLt:
    case OpCode::kCmpLe:
      if (!Computes(s)) return false;
      Remember(b_.Cmp(code, Operand(t), Operand(t)));
      return true;
    case OpCode::kSelect:
      Remember(b_.Select(Operand({Scalar::kI1, t.lanes}), Operand(t), Operand(t)));
      return true;
    case OpCode::kCvt:
      return ApplyConvert(t);
    case OpCode::kBitcast:
      return ApplyBitcast(t);
    case OpCode::kExtract:
      Remember(b_.Extract(Operand(t), static_cast<int>(Below(t.lanes))));
      return true;
    case OpCode::kInsert:
      Remember(b_.Insert(Operand(t), Operand({s, 1}), static_cast<int>(Below(t.lanes))));
      return true;
    case OpCode::kShuffle:
      ApplyShuffle(t);
      return true;
    case OpCode::kReduceAdd:
    case OpCode::kReduceMax:
    case OpCode::kReduceMin:
      if (!Computes(s) || (t.lanes & (t.lanes - 1)) != 0) return false;
      Remember(b_.Reduce(code, Operand(t)));
      return true;
    case OpCode::kDot4:
      return ApplyDot4(t);
    case OpCode::kFor:
    case OpCode::kIf:
    case OpCode::kOnce:
      return false;  // Loop, Branch and FillScratchOnce make these
  }
  return false;
}

void Generator::ApplyRandom(int depth) {
  if (depth < 3 && Chance(8)) return Loop(depth + 1);
  if (depth < 3 && Chance(6)) return Branch(depth + 1);
  const Type t = RandomType();
  const OpCode code = static_cast<OpCode>(Below(kOpCount));
  // The all-sources ops are dear to compile when wide.
  if (code == OpCode::kCvt && Chance(70)) return;
  Apply(code, t);
}

void Generator::Loop(int depth) {
  std::vector<Value> init;
  for (uint64_t i = Below(4); i > 0; --i) init.push_back(Operand(RandomType()));
  const Value begin = Chance(30) ? tile_ : zero_;
  const Value end = Chance(50) ? count_ : b_.Int(static_cast<int64_t>(Below(6)));
  pool_.emplace_back();
  const std::vector<Value> out =
      b_.For(begin, end, 1 + static_cast<int64_t>(Below(3)), init, [&](Value iv, auto carried) {
        pool_.back()[Key(kI64)].push_back(iv);
        for (const Value v : carried) pool_.back()[Key(b_.type(v))].push_back(v);
        for (uint64_t i = 2 + Below(5); i > 0; --i) ApplyRandom(depth);
        std::vector<Value> yields;
        for (const Value v : carried) yields.push_back(Operand(b_.type(v)));
        return yields;
      });
  pool_.pop_back();
  for (const Value v : out) {
    Record(v);
    pool_.back()[Key(b_.type(v))].push_back(v);
  }
}

void Generator::Branch(int depth) {
  const Type t = Chance(50) ? kI64 : kernel::kF32;
  const Value cond =
      b_.Cmp(OpCode::kCmpLe, Operand(t), Chance(40) && t == kI64 ? flag_ : Operand(t));
  pool_.emplace_back();
  b_.If(cond, [&] {
    for (uint64_t i = 1 + Below(4); i > 0; --i) ApplyRandom(depth);
  });
  pool_.pop_back();
}

// Bytes 0..511 of scratch hold what `once` put there, 512..1023 belong to the running tile.
void Generator::FillScratchOnce() {
  b_.Once([&] {
    for (int i = 0; i < 512; i += 64) {
      const int64_t from = static_cast<int64_t>(Below(kInputBytes - 64));
      b_.Store(b_.Load({Scalar::kU8, 64}, x_, zero_, from), b_.scratch(), zero_, scratch_ + i);
    }
  });
}

void Generator::UseScratch() {
  const Type bytes{Scalar::kU8, static_cast<uint16_t>(1 << Below(6))};
  Remember(b_.Load(bytes, b_.scratch(), zero_, scratch_ + static_cast<int64_t>(Below(512 - 32))));
  Type t = RandomType();
  if (t.scalar == Scalar::kI1 || t.bytes() > 256) t = kernel::F32x(8);
  const int64_t at = scratch_ + 512 + static_cast<int64_t>(Below(256));
  b_.Store(Operand(t), b_.scratch(), zero_, at);
  Remember(b_.Load(t, b_.scratch(), zero_, at));
}

}  // namespace

std::vector<uint8_t> MakeInput(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> input(kInputBytes);
  for (const Scalar s : kScalars) {
    const int size = std::max(1, ScalarBytes(s));
    uint8_t* region = input.data() + static_cast<int64_t>(s) * kRegionBytes;
    for (int64_t at = 0; at + size <= kRegionBytes; at += size) {
      const uint64_t bits = MakeValue(s, random);
      std::memcpy(region + at, &bits, size);
    }
  }
  return input;
}

Generated EveryOpOf(Type type, uint64_t seed) {
  Generator g("every_op", seed);
  g.FillScratchOnce();
  for (int code = 0; code < kOpCount; ++code) {
    g.Apply(static_cast<OpCode>(code), type);
  }
  return g.Finish();
}

Generated RandomKernel(uint64_t seed, int ops) {
  Generator g("random_kernel", seed);
  g.set_record_percent(g.Chance(50) ? 100 : 30);  // unrecorded values can fuse into their users
  g.FillScratchOnce();
  for (int i = 0; i < ops; ++i) g.ApplyRandom(0);
  return g.Finish();
}

}  // namespace cuvil::conformance
