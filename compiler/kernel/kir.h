// Kernel IR: what one launch does, as structured SSA. A kernel is run once per tile by some worker:
//
//   kernel(buffers, scalars, tile, first) -> nothing, effects only through stores
//
// Values are scalars or fixed vectors. Memory is a handful of named buffers addressed by byte
// offset (s64 value + constant displacement), so packed layouts need no casts; buffers never alias
// each other. `scratch` is private to the worker and survives from tile to tile of one launch,
// which is what `once` is for: its body runs on the worker's first tile of a launch. Not in it:
// tensor ops, calls, heap, raw pointers, implicit reassociation or contraction, libm. Every op has
// one meaning, given by the interpreter (interpreter.h); backends reproduce it bit for bit.
//
// A Kernel is a plain value: built by one thread (Builder), then immutable and shared.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace cuvil::kernel {

enum class Scalar : uint8_t {
  kI1,
  kS8,
  kU8,
  kS16,
  kU16,
  kS32,
  kU32,
  kS64,
  kF16,
  kBf16,
  kF32,
  kF64
};

int ScalarBytes(Scalar s);  // size in memory; i1 has none (0)
std::string_view ScalarName(Scalar s);
constexpr bool IsFloat(Scalar s) { return s >= Scalar::kF16; }
constexpr bool IsSigned(Scalar s) {
  return s == Scalar::kS8 || s == Scalar::kS16 || s == Scalar::kS32 || s == Scalar::kS64;
}

struct Type {
  Scalar scalar = Scalar::kS64;
  uint16_t lanes = 1;
  bool operator==(const Type&) const = default;
  int bytes() const { return ScalarBytes(scalar) * lanes; }
};

inline constexpr Type kI64{Scalar::kS64, 1};
inline constexpr Type kF32{Scalar::kF32, 1};
constexpr Type F32x(int lanes) { return {Scalar::kF32, static_cast<uint16_t>(lanes)}; }
constexpr Type S32x(int lanes) { return {Scalar::kS32, static_cast<uint16_t>(lanes)}; }

struct Value {
  uint32_t id = ~0u;
  bool valid() const { return id != ~0u; }
  bool operator==(const Value&) const = default;
};

struct Buf {
  uint32_t index = ~0u;
};

// name, doc. Operand rules are in verify.cc, meanings in interp_*.cc.
#define CUVIL_KERNEL_OPS(X)                                                                        \
  X(kConst, "const", "immediate, splatted over the lanes of its type")                             \
  X(kScalarArg, "scalar_arg", "launch scalar number imm, s64")                                     \
  X(kTile, "tile", "number of this tile in the launch's grid, s64")                                \
  X(kIota, "iota", "lane numbers 0, 1, ...")                                                       \
  X(kSplat, "splat", "scalar to every lane")                                                       \
  X(kLoad, "load", "type from buf[offset + imm]")                                                  \
  X(kStore, "store", "value to buf[offset + imm]")                                                 \
  X(kGather, "gather", "one scalar a lane from buf[offset + imm + index lane * size]")             \
  X(kPrefetch, "prefetch", "hint that buf[offset + imm] is read soon; any address is legal")       \
  X(kAdd, "add", "a + b; integers wrap")                                                           \
  X(kSub, "sub", "a - b; integers wrap")                                                           \
  X(kMul, "mul", "a * b; integers wrap")                                                           \
  X(kDiv, "div", "a / b; integers round to zero, b must not be 0")                                 \
  X(kRem, "rem", "a - b * (a / b), integers only")                                                 \
  X(kFma, "fma", "a * b + c with one rounding, floats only")                                       \
  X(kMin, "min", "a < b ? a : b")                                                                  \
  X(kMax, "max", "a > b ? a : b")                                                                  \
  X(kAnd, "and", "bitwise, integers and i1")                                                       \
  X(kOr, "or", "bitwise, integers and i1")                                                         \
  X(kXor, "xor", "bitwise, integers and i1")                                                       \
  X(kShl, "shl", "shift left by imm bits")                                                         \
  X(kShr, "shr", "shift right by imm bits, arithmetic if signed")                                  \
  X(kNeg, "neg", "-a; floats flip the sign bit")                                                   \
  X(kAbs, "abs", "|a|; floats clear the sign bit")                                                 \
  X(kSqrt, "sqrt", "correctly rounded")                                                            \
  X(kFloor, "floor", "towards minus infinity")                                                     \
  X(kCeil, "ceil", "towards plus infinity")                                                        \
  X(kTrunc, "trunc", "towards zero")                                                               \
  X(kRound, "round", "to nearest, ties to even")                                                   \
  X(kCmpEq, "cmp_eq", "a == b, i1 lanes")                                                          \
  X(kCmpNe, "cmp_ne", "a != b, i1 lanes; true with NaN")                                           \
  X(kCmpLt, "cmp_lt", "a < b, i1 lanes; false with NaN")                                           \
  X(kCmpLe, "cmp_le", "a <= b, i1 lanes; false with NaN")                                          \
  X(kSelect, "select", "cond ? a : b, lane by lane")                                               \
  X(kCvt, "cvt", "to type: int-int wraps or extends, float-int truncates (in range), rounds else") \
  X(kBitcast, "bitcast", "same bits as another type of the same size")                             \
  X(kExtract, "extract", "lane imm as a scalar")                                                   \
  X(kInsert, "insert", "a with lane imm replaced by b")                                            \
  X(kShuffle, "shuffle", "lanes picked by table from the concatenation of a and b")                \
  X(kReduceAdd, "reduce_add", "sum of lanes, halves folded pairwise: lane i + lane i+n/2, ...")    \
  X(kReduceMax, "reduce_max", "largest lane, folded like reduce_add")                              \
  X(kReduceMin, "reduce_min", "smallest lane, folded like reduce_add")                             \
  X(kDot4, "dot4",                                                                                 \
    "c + sum of 4 products of u8 bytes of a and s8 bytes of b, per s32 lane; imm "                 \
    "bounds the bytes of a")                                                                       \
  X(kFor, "for", "for iv in [a, b) step imm with carried values")                                  \
  X(kIf, "if", "run the block when cond; no results")                                              \
  X(kOnce, "once", "run the block on the worker's first tile of the launch")

enum class OpCode : uint8_t {
#define X(code, name, doc) code,
  CUVIL_KERNEL_OPS(X)
#undef X
};

std::string_view OpName(OpCode code);

struct Op {
  OpCode code;
  Type type;                   // of the result; of the stored value for store
  std::vector<Value> in;       // for: begin, end, then initial carried values
  std::vector<Value> out;      // one result, or the carried values of `for`
  int64_t imm = 0;             // displacement, lane, shift, step, bound, argument number
  double fimm = 0;             // constant of a float type
  Buf buf;                     // load, store, gather, prefetch
  std::vector<int16_t> table;  // shuffle
  int block = -1;              // body of for, if, once
};

// A body: parameters (for: induction variable, then carried values), ops in order, yielded values.
struct Block {
  std::vector<Value> params;
  std::vector<int> ops;  // indices into Kernel::ops
  std::vector<Value> yields;
};

struct BufferArg {
  std::string name;
  bool written = false;
};

struct Kernel {
  std::string name;
  std::vector<BufferArg> buffers;    // passed by the launch
  std::vector<std::string> scalars;  // s64 launch scalars
  int64_t scratch_bytes = 0;         // per worker, 64-byte aligned; buffer index kScratch
  std::vector<Op> ops;
  std::vector<Block> blocks;  // blocks[0] is the body
  std::vector<Type> types;    // by value id
  Type type(Value v) const { return types[v.id]; }
};

inline constexpr uint32_t kScratch = 0xffff;  // Buf::index of the worker's scratch

// Builds one kernel. Misuse (types that do not fit) is a bug of ours and stops the process.
class Builder {
 public:
  explicit Builder(std::string name);
  Kernel Finish();  // ends the build; the builder is empty afterwards

  Buf Buffer(std::string name, bool written = false);
  Value ScalarArg(std::string name);
  // Reserves worker scratch; returns its byte offset, 64-byte aligned.
  int64_t Scratch(int64_t bytes);
  Buf scratch() const { return Buf{kScratch}; }
  Value Tile();

  Value Int(int64_t v, Type t = kI64);
  Value Float(double v, Type t = kF32);
  Value Iota(Type t);
  Value Splat(Value v, int lanes);

  Value Load(Type t, Buf b, Value offset, int64_t disp = 0);
  void Store(Value v, Buf b, Value offset, int64_t disp = 0);
  Value Gather(Type t, Buf b, Value offset, Value index, int64_t disp = 0);
  void Prefetch(Buf b, Value offset, int64_t disp = 0);
  // Loads a scalar and splats it: what embedded broadcasts are made of.
  Value LoadSplat(Type t, Buf b, Value offset, int64_t disp = 0);

  Value Add(Value a, Value b) { return Binary(OpCode::kAdd, a, b); }
  Value Sub(Value a, Value b) { return Binary(OpCode::kSub, a, b); }
  Value Mul(Value a, Value b) { return Binary(OpCode::kMul, a, b); }
  Value Div(Value a, Value b) { return Binary(OpCode::kDiv, a, b); }
  Value Rem(Value a, Value b) { return Binary(OpCode::kRem, a, b); }
  Value Min(Value a, Value b) { return Binary(OpCode::kMin, a, b); }
  Value Max(Value a, Value b) { return Binary(OpCode::kMax, a, b); }
  Value And(Value a, Value b) { return Binary(OpCode::kAnd, a, b); }
  Value Or(Value a, Value b) { return Binary(OpCode::kOr, a, b); }
  Value Xor(Value a, Value b) { return Binary(OpCode::kXor, a, b); }
  Value Fma(Value a, Value b, Value c);
  Value Shl(Value a, int bits);
  Value Shr(Value a, int bits);
  Value Unary(OpCode code, Value a);
  Value Neg(Value a) { return Unary(OpCode::kNeg, a); }
  Value Abs(Value a) { return Unary(OpCode::kAbs, a); }
  Value Sqrt(Value a) { return Unary(OpCode::kSqrt, a); }
  Value Cmp(OpCode code, Value a, Value b);
  Value Select(Value cond, Value a, Value b);
  Value Cvt(Value a, Scalar to);
  Value Bitcast(Value a, Type to);
  Value Extract(Value a, int lane);
  Value Insert(Value a, Value scalar, int lane);
  Value Shuffle(Value a, Value b, std::vector<int16_t> table);
  Value Reduce(OpCode code, Value a);
  // a: u8 bytes in s32 lanes, each byte at most byte_max; b: s8 bytes in s32 lanes.
  Value Dot4(Value c, Value a, Value b, int byte_max = 255);

  using LoopBody = std::function<std::vector<Value>(Value iv, absl::Span<const Value> carried)>;
  std::vector<Value> For(Value begin, Value end, int64_t step, std::vector<Value> init,
                         const LoopBody& body);
  void For(Value begin, Value end, int64_t step, const std::function<void(Value)>& body);
  void If(Value cond, const std::function<void()>& body);
  void Once(const std::function<void()>& body);

  Value AddImm(Value a, int64_t v) { return v == 0 ? a : Add(a, Int(v, type(a))); }
  Value MulImm(Value a, int64_t v) { return v == 1 ? a : Mul(a, Int(v, type(a))); }
  Type type(Value v) const { return kernel_.types[v.id]; }

 private:
  Value Binary(OpCode code, Value a, Value b);
  Value NewValue(Type t);
  Value Emit(Op op);  // appends with one result of op.type
  void EmitVoid(Op op);

  Kernel kernel_;
  std::vector<int> open_;  // blocks being built, innermost last
};

}  // namespace cuvil::kernel
