#include <utility>

#include "compiler/kernel/kir.h"

namespace cuvil::kernel {

int ScalarBytes(Scalar s) {
  switch (s) {
    case Scalar::kI1:
      return 0;
    case Scalar::kS8:
    case Scalar::kU8:
      return 1;
    case Scalar::kS16:
    case Scalar::kU16:
    case Scalar::kF16:
    case Scalar::kBf16:
      return 2;
    case Scalar::kS32:
    case Scalar::kU32:
    case Scalar::kF32:
      return 4;
    case Scalar::kS64:
    case Scalar::kF64:
      return 8;
  }
  return 0;
}

std::string_view ScalarName(Scalar s) {
  static constexpr std::string_view kNames[] = {"i1",  "s8",  "u8",  "s16",  "u16", "s32",
                                                "u32", "s64", "f16", "bf16", "f32", "f64"};
  return kNames[static_cast<int>(s)];
}

std::string_view OpName(OpCode code) {
  static constexpr std::string_view kNames[] = {
#define X(code, name, doc) name,
      CUVIL_KERNEL_OPS(X)
#undef X
  };
  return kNames[static_cast<int>(code)];
}

Builder::Builder(std::string name) {
  kernel_.name = std::move(name);
  kernel_.blocks.emplace_back();
  open_.push_back(0);
}

Kernel Builder::Finish() {
  CUVIL_CHECK(open_.size() == 1, "a block is still open");
  return std::exchange(kernel_, Kernel{});
}

Buf Builder::Buffer(std::string name, bool written) {
  kernel_.buffers.push_back({std::move(name), written});
  return Buf{static_cast<uint32_t>(kernel_.buffers.size() - 1)};
}

Value Builder::ScalarArg(std::string name) {
  kernel_.scalars.push_back(std::move(name));
  return Emit({.code = OpCode::kScalarArg,
               .type = kI64,
               .imm = static_cast<int64_t>(kernel_.scalars.size()) - 1});
}

int64_t Builder::Scratch(int64_t bytes) {
  const int64_t offset = kernel_.scratch_bytes;
  kernel_.scratch_bytes += (bytes + 63) / 64 * 64;
  return offset;
}

Value Builder::NewValue(Type t) {
  kernel_.types.push_back(t);
  return Value{static_cast<uint32_t>(kernel_.types.size() - 1)};
}

Value Builder::Emit(Op op) {
  const Value v = NewValue(op.type);
  op.out = {v};
  EmitVoid(std::move(op));
  return v;
}

void Builder::EmitVoid(Op op) {
  kernel_.ops.push_back(std::move(op));
  kernel_.blocks[open_.back()].ops.push_back(static_cast<int>(kernel_.ops.size()) - 1);
}

Value Builder::Tile() { return Emit({.code = OpCode::kTile, .type = kI64}); }

Value Builder::Int(int64_t v, Type t) {
  CUVIL_CHECK(!IsFloat(t.scalar), "integer constant of a float type");
  return Emit({.code = OpCode::kConst, .type = t, .imm = v});
}

Value Builder::Float(double v, Type t) {
  CUVIL_CHECK(IsFloat(t.scalar), "float constant of an integer type");
  return Emit({.code = OpCode::kConst, .type = t, .fimm = v});
}

Value Builder::Iota(Type t) { return Emit({.code = OpCode::kIota, .type = t}); }

Value Builder::Splat(Value v, int lanes) {
  CUVIL_CHECK(type(v).lanes == 1, "splat takes a scalar");
  if (lanes == 1) return v;
  return Emit(
      {.code = OpCode::kSplat, .type = {type(v).scalar, static_cast<uint16_t>(lanes)}, .in = {v}});
}

Value Builder::Load(Type t, Buf b, Value offset, int64_t disp) {
  CUVIL_CHECK(type(offset) == kI64, "offsets are s64");
  return Emit({.code = OpCode::kLoad, .type = t, .in = {offset}, .imm = disp, .buf = b});
}

void Builder::Store(Value v, Buf b, Value offset, int64_t disp) {
  CUVIL_CHECK(type(offset) == kI64, "offsets are s64");
  EmitVoid({.code = OpCode::kStore, .type = type(v), .in = {v, offset}, .imm = disp, .buf = b});
}

Value Builder::Gather(Type t, Buf b, Value offset, Value index, int64_t disp) {
  CUVIL_CHECK(type(index).lanes == t.lanes && !IsFloat(type(index).scalar), "one index a lane");
  return Emit({.code = OpCode::kGather, .type = t, .in = {offset, index}, .imm = disp, .buf = b});
}

void Builder::Prefetch(Buf b, Value offset, int64_t disp) {
  EmitVoid({.code = OpCode::kPrefetch, .type = kI64, .in = {offset}, .imm = disp, .buf = b});
}

Value Builder::LoadSplat(Type t, Buf b, Value offset, int64_t disp) {
  return Splat(Load({t.scalar, 1}, b, offset, disp), t.lanes);
}

Value Builder::Binary(OpCode code, Value a, Value b) {
  CUVIL_CHECK(type(a) == type(b), absl::StrCat(Sv(OpName(code)), " of two types"));
  return Emit({.code = code, .type = type(a), .in = {a, b}});
}

Value Builder::Fma(Value a, Value b, Value c) {
  CUVIL_CHECK(type(a) == type(b) && type(a) == type(c) && IsFloat(type(a).scalar), "fma of floats");
  return Emit({.code = OpCode::kFma, .type = type(a), .in = {a, b, c}});
}

Value Builder::Shl(Value a, int bits) {
  return Emit({.code = OpCode::kShl, .type = type(a), .in = {a}, .imm = bits});
}

Value Builder::Shr(Value a, int bits) {
  return Emit({.code = OpCode::kShr, .type = type(a), .in = {a}, .imm = bits});
}

Value Builder::Unary(OpCode code, Value a) {
  return Emit({.code = code, .type = type(a), .in = {a}});
}

Value Builder::Cmp(OpCode code, Value a, Value b) {
  CUVIL_CHECK(type(a) == type(b), "comparison of two types");
  return Emit({.code = code, .type = {Scalar::kI1, type(a).lanes}, .in = {a, b}});
}

Value Builder::Select(Value cond, Value a, Value b) {
  CUVIL_CHECK(
      type(a) == type(b) && type(cond).scalar == Scalar::kI1 && type(cond).lanes == type(a).lanes,
      "select of two types");
  return Emit({.code = OpCode::kSelect, .type = type(a), .in = {cond, a, b}});
}

Value Builder::Cvt(Value a, Scalar to) {
  if (type(a).scalar == to) return a;
  return Emit({.code = OpCode::kCvt, .type = {to, type(a).lanes}, .in = {a}});
}

Value Builder::Bitcast(Value a, Type to) {
  CUVIL_CHECK(type(a).bytes() == to.bytes(), "bitcast between sizes");
  return Emit({.code = OpCode::kBitcast, .type = to, .in = {a}});
}

Value Builder::Extract(Value a, int lane) {
  CUVIL_CHECK(lane >= 0 && lane < type(a).lanes, "lane out of range");
  return Emit({.code = OpCode::kExtract, .type = {type(a).scalar, 1}, .in = {a}, .imm = lane});
}

Value Builder::Insert(Value a, Value scalar, int lane) {
  CUVIL_CHECK(lane >= 0 && lane < type(a).lanes, "lane out of range");
  return Emit({.code = OpCode::kInsert, .type = type(a), .in = {a, scalar}, .imm = lane});
}

Value Builder::Shuffle(Value a, Value b, std::vector<int16_t> table) {
  CUVIL_CHECK(type(a) == type(b), "shuffle of two types");
  const Type t{type(a).scalar, static_cast<uint16_t>(table.size())};
  Op op{.code = OpCode::kShuffle, .type = t, .in = {a, b}};
  op.table = std::move(table);
  return Emit(std::move(op));
}

Value Builder::Reduce(OpCode code, Value a) {
  return Emit({.code = code, .type = {type(a).scalar, 1}, .in = {a}});
}

Value Builder::Dot4(Value c, Value a, Value b, int byte_max) {
  CUVIL_CHECK(type(a) == type(b) && type(a) == type(c) && type(a).scalar == Scalar::kS32,
              "dot4 of s32 lanes");
  return Emit({.code = OpCode::kDot4, .type = type(c), .in = {c, a, b}, .imm = byte_max});
}

std::vector<Value> Builder::For(Value begin, Value end, int64_t step, std::vector<Value> init,
                                const LoopBody& body) {
  Op op{.code = OpCode::kFor, .type = kI64, .in = {begin, end}, .imm = step};
  const int block = static_cast<int>(kernel_.blocks.size());
  kernel_.blocks.emplace_back();
  op.block = block;
  const Value iv = NewValue(kI64);
  std::vector<Value> params = {iv};
  for (const Value v : init) {
    op.in.push_back(v);
    params.push_back(NewValue(type(v)));
  }
  kernel_.blocks[block].params = params;
  open_.push_back(block);
  std::vector<Value> yields = body(iv, absl::MakeConstSpan(params).subspan(1));
  open_.pop_back();
  CUVIL_CHECK(yields.size() == init.size(), "a loop yields what it carries");
  for (size_t i = 0; i < init.size(); ++i) {
    CUVIL_CHECK(type(yields[i]) == type(init[i]), "a loop yields what it carries");
    op.out.push_back(NewValue(type(init[i])));
  }
  kernel_.blocks[block].yields = std::move(yields);
  std::vector<Value> out = op.out;
  EmitVoid(std::move(op));
  return out;
}

void Builder::For(Value begin, Value end, int64_t step, const std::function<void(Value)>& body) {
  For(begin, end, step, {}, [&](Value iv, absl::Span<const Value>) {
    body(iv);
    return std::vector<Value>{};
  });
}

void Builder::If(Value cond, const std::function<void()>& body) {
  CUVIL_CHECK(type(cond) == (Type{Scalar::kI1, 1}), "if takes an i1");
  const int block = static_cast<int>(kernel_.blocks.size());
  kernel_.blocks.emplace_back();
  open_.push_back(block);
  body();
  open_.pop_back();
  EmitVoid({.code = OpCode::kIf, .type = kI64, .in = {cond}, .block = block});
}

void Builder::Once(const std::function<void()>& body) {
  const int block = static_cast<int>(kernel_.blocks.size());
  kernel_.blocks.emplace_back();
  open_.push_back(block);
  body();
  open_.pop_back();
  EmitVoid({.code = OpCode::kOnce, .type = kI64, .block = block});
}

}  // namespace cuvil::kernel
