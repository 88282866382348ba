#include "compiler/kernel/verify.h"

#include <cmath>
#include <set>
#include <utility>

namespace cuvil::kernel {
namespace {

bool IsInt(Scalar s) { return s >= Scalar::kS8 && s <= Scalar::kS64; }
bool IsComputeFloat(Scalar s) { return s == Scalar::kF32 || s == Scalar::kF64; }
bool IsArithmetic(Scalar s) { return IsInt(s) || IsComputeFloat(s); }
bool IsSmallFloat(Scalar s) { return s == Scalar::kF16 || s == Scalar::kBf16; }

bool ValidType(Type t) { return t.scalar <= Scalar::kF64 && t.lanes >= 1 && t.lanes <= kLanesMax; }

std::string Name(Type t) {
  return t.lanes == 1 ? std::string(ScalarName(t.scalar))
                      : absl::StrCat(Sv(ScalarName(t.scalar)), "x", t.lanes);
}

bool CanConvert(Scalar from, Scalar to) {
  if (from == to) return false;
  if (IsSmallFloat(from)) return to == Scalar::kF32;
  if (IsSmallFloat(to)) return from == Scalar::kF32;
  if (from == Scalar::kI1) return IsInt(to);
  return to != Scalar::kI1;
}

bool ConstantFits(int64_t v, Scalar s) {
  if (s == Scalar::kI1) return v == 0 || v == 1;
  const int bits = 8 * ScalarBytes(s);
  if (bits == 64) return true;
  return v >= -(int64_t{1} << (bits - 1)) && v < (int64_t{1} << bits);
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : k_(kernel) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CheckHeader());
    defined_.assign(k_.types.size(), false);
    visible_.assign(k_.types.size(), false);
    block_used_.assign(k_.blocks.size(), false);
    op_used_.assign(k_.ops.size(), false);
    block_used_[0] = true;
    if (!k_.blocks[0].params.empty() || !k_.blocks[0].yields.empty()) {
      return Fail("block 0 is the kernel's body and takes and yields nothing");
    }
    RETURN_IF_ERROR(CheckBlock(0, 1));
    for (size_t i = 0; i < op_used_.size(); ++i) {
      if (!op_used_[i]) return Fail(absl::StrCat("op ", i, " is in no block"));
    }
    for (size_t i = 0; i < block_used_.size(); ++i) {
      if (!block_used_[i]) return Fail(absl::StrCat("block ", i, " is the body of no op"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Fail(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat("kernel '", k_.name, "': ", why));
  }

  absl::Status FailOp(int index, const std::string& why) const {
    return Fail(absl::StrCat("op ", index, " (", Sv(OpName(k_.ops[index].code)), "): ", why));
  }

  absl::Status CheckHeader() const {
    if (k_.name.empty()) return absl::InvalidArgumentError("kernel without a name");
    if (k_.blocks.empty()) return Fail("no body");
    if (k_.buffers.size() > kBuffersMax || k_.scalars.size() > kScalarsMax) {
      return Fail(absl::StrCat("more than ", kBuffersMax, " buffers or ", kScalarsMax, " scalars"));
    }
    if (k_.types.size() > kValuesMax)
      return Fail(absl::StrCat("more than ", kValuesMax, " values"));
    if (k_.scratch_bytes < 0 || k_.scratch_bytes > kScratchBytesMax) {
      return Fail(absl::StrCat(k_.scratch_bytes, " scratch bytes; at most ", kScratchBytesMax));
    }
    std::set<std::string> names = {"scratch"};  // how text calls the worker's scratch
    for (const BufferArg& b : k_.buffers) {
      if (b.name.empty() || !names.insert(b.name).second) {
        return Fail(absl::StrCat("buffer name '", b.name, "' is empty or taken"));
      }
    }
    names.clear();
    for (const std::string& s : k_.scalars) {
      if (s.empty() || !names.insert(s).second) {
        return Fail(absl::StrCat("scalar name '", s, "' is empty or taken"));
      }
    }
    for (size_t i = 0; i < k_.types.size(); ++i) {
      if (!ValidType(k_.types[i])) return Fail(absl::StrCat("value ", i, " has no legal type"));
    }
    return absl::OkStatus();
  }

  absl::Status Define(Value v, std::vector<Value>* scope, const std::string& where) {
    if (v.id >= k_.types.size()) return Fail(absl::StrCat(where, " defines no value"));
    if (defined_[v.id]) return Fail(absl::StrCat(where, " defines %", v.id, " a second time"));
    defined_[v.id] = visible_[v.id] = true;
    scope->push_back(v);
    return absl::OkStatus();
  }

  absl::Status CheckUse(Value v, const std::string& where) const {
    if (v.id >= k_.types.size()) return Fail(absl::StrCat(where, " uses no value"));
    if (!visible_[v.id]) {
      return Fail(absl::StrCat(where, " uses %", v.id, ", which is not defined there"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckBlock(int index, int depth) {
    if (depth > kNestingMax) return Fail(absl::StrCat("blocks nest over ", kNestingMax, " deep"));
    const Block& block = k_.blocks[index];
    std::vector<Value> scope;
    const std::string where = absl::StrCat("block ", index);
    for (const Value v : block.params) RETURN_IF_ERROR(Define(v, &scope, where));
    for (const int i : block.ops) {
      if (i < 0 || static_cast<size_t>(i) >= k_.ops.size()) {
        return Fail(absl::StrCat(where, " lists op ", i, ", which does not exist"));
      }
      if (op_used_[i]) return Fail(absl::StrCat("op ", i, " is listed twice"));
      op_used_[i] = true;
      RETURN_IF_ERROR(CheckOp(i, depth, &scope));
    }
    for (const Value v : block.yields) RETURN_IF_ERROR(CheckUse(v, where));
    for (const Value v : scope) visible_[v.id] = false;
    return absl::OkStatus();
  }

  absl::Status CheckOp(int i, int depth, std::vector<Value>* scope) {
    const Op& op = k_.ops[i];
    if (static_cast<int>(op.code) >= kOpCount) return Fail(absl::StrCat("op ", i, " has no code"));
    const std::string where = absl::StrCat("op ", i, " (", Sv(OpName(op.code)), ")");
    if (!ValidType(op.type)) return FailOp(i, "has no legal type");
    for (const Value v : op.in) RETURN_IF_ERROR(CheckUse(v, where));
    RETURN_IF_ERROR(CheckFields(i));
    if (IsRegion(op.code)) RETURN_IF_ERROR(CheckRegion(i, depth));
    for (const Value v : op.out) RETURN_IF_ERROR(Define(v, scope, where));
    if (HasResult(op.code)) {
      if (op.out.size() != 1) return FailOp(i, "defines one value");
      if (k_.type(op.out[0]) != op.type) return FailOp(i, "its result has another type");
    } else if (op.code != OpCode::kFor && !op.out.empty()) {
      return FailOp(i, "defines no value");
    }
    const std::string why = op.code == OpCode::kFor ? ForRule(op) : Rule(op);
    return why.empty() ? absl::OkStatus() : FailOp(i, why);
  }

  // Fields the op does not use must be untouched; buffers must exist.
  absl::Status CheckFields(int i) const {
    const Op& op = k_.ops[i];
    if (op.code != OpCode::kShuffle && !op.table.empty()) return FailOp(i, "has a table");
    if (!IsRegion(op.code) && op.block != -1) return FailOp(i, "has a body");
    if (!UsesMemory(op.code) && op.buf.index != Buf{}.index) return FailOp(i, "names a buffer");
    const bool float_const = op.code == OpCode::kConst && IsFloat(op.type.scalar);
    if (!float_const && (op.fimm != 0 || std::signbit(op.fimm))) {
      return FailOp(i, "has a float immediate");
    }
    if (!UsesImmediate(op) && op.imm != 0) return FailOp(i, "has an immediate");
    if (UsesMemory(op.code)) {
      const uint32_t b = op.buf.index;
      if (b != kScratch && b >= k_.buffers.size()) {
        return FailOp(i, absl::StrCat("buffer ", b, " does not exist"));
      }
      if (op.code == OpCode::kStore && b != kScratch && !k_.buffers[b].written) {
        return FailOp(i, absl::StrCat("buffer '", k_.buffers[b].name, "' is not written"));
      }
    }
    return absl::OkStatus();
  }

  static bool UsesImmediate(const Op& op) {
    switch (op.code) {
      case OpCode::kConst:
        return !IsFloat(op.type.scalar);
      case OpCode::kScalarArg:
      case OpCode::kShl:
      case OpCode::kShr:
      case OpCode::kExtract:
      case OpCode::kInsert:
      case OpCode::kDot4:
      case OpCode::kFor:
        return true;
      default:
        return UsesMemory(op.code);
    }
  }

  absl::Status CheckRegion(int i, int depth) {
    const Op& op = k_.ops[i];
    if (op.block <= 0 || static_cast<size_t>(op.block) >= k_.blocks.size()) {
      return FailOp(i, absl::StrCat("body ", op.block, " is not a block"));
    }
    if (block_used_[op.block]) {
      return FailOp(i, absl::StrCat("block ", op.block, " already has an owner"));
    }
    block_used_[op.block] = true;
    const Block& body = k_.blocks[op.block];
    if (op.code != OpCode::kFor && (!body.params.empty() || !body.yields.empty())) {
      return FailOp(i, "its body takes and yields nothing");
    }
    return CheckBlock(op.block, depth + 1);
  }

  std::string ForRule(const Op& op) const {
    const Block& body = k_.blocks[op.block];
    if (op.in.size() < 2) return "takes begin and end";
    if (op.type != kI64) return "has type s64";
    if (op.imm < 1) return absl::StrCat("step ", op.imm, " is not positive");
    const size_t carried = op.in.size() - 2;
    if (body.params.size() != carried + 1 || body.yields.size() != carried ||
        op.out.size() != carried) {
      return absl::StrCat("carries ", carried,
                          " values: parameters, yields and results must match");
    }
    if (k_.type(op.in[0]) != kI64 || k_.type(op.in[1]) != kI64 || k_.type(body.params[0]) != kI64) {
      return "bounds and induction variable are s64";
    }
    for (size_t i = 0; i < carried; ++i) {
      const Type t = k_.type(op.in[i + 2]);
      if (k_.type(body.params[i + 1]) != t || k_.type(body.yields[i]) != t ||
          k_.type(op.out[i]) != t) {
        return absl::StrCat("carried value ", i, " changes its type");
      }
    }
    return "";
  }

  // The rule of an op's operands, type and immediate; empty when kept.
  std::string Rule(const Op& op) const {
    std::vector<Type> in;
    for (const Value v : op.in) in.push_back(k_.type(v));
    const Type t = op.type;
    const auto arity = [&](size_t n) { return in.size() == n; };
    const auto same = [&](size_t n) {  // n operands of the result's type
      if (in.size() != n) return false;
      for (const Type x : in) {
        if (x != t) return false;
      }
      return true;
    };
    switch (op.code) {
      case OpCode::kConst:
        if (!arity(0)) return "takes no operand";
        if (IsFloat(t.scalar) || ConstantFits(op.imm, t.scalar)) return "";
        return absl::StrCat(op.imm, " does not fit ", Name(t));
      case OpCode::kScalarArg:
        if (!arity(0) || t != kI64) return "takes no operand and gives s64";
        if (op.imm >= 0 && static_cast<size_t>(op.imm) < k_.scalars.size()) return "";
        return absl::StrCat("scalar ", op.imm, " does not exist");
      case OpCode::kTile:
        return arity(0) && t == kI64 ? "" : "takes no operand and gives s64";
      case OpCode::kIota:
        return arity(0) && IsInt(t.scalar) ? "" : "takes no operand and gives integers";
      case OpCode::kSplat:
        return arity(1) && in[0] == Type{t.scalar, 1} ? "" : "takes a scalar of its lanes' type";
      case OpCode::kLoad:
        if (!arity(1) || in[0] != kI64) return "takes one s64 offset";
        return t.scalar != Scalar::kI1 ? "" : "i1 has no size in memory";
      case OpCode::kStore:
        if (!arity(2) || in[0] != t || in[1] != kI64)
          return "takes a value of its type and an offset";
        return t.scalar != Scalar::kI1 ? "" : "i1 has no size in memory";
      case OpCode::kGather:
        if (!arity(2) || in[0] != kI64) return "takes an s64 offset and indices";
        if (!IsInt(in[1].scalar) || in[1].lanes != t.lanes) return "takes one integer index a lane";
        return t.scalar != Scalar::kI1 ? "" : "i1 has no size in memory";
      case OpCode::kPrefetch:
        return arity(1) && in[0] == kI64 && t == kI64 ? "" : "takes one s64 offset";
      case OpCode::kAdd:
      case OpCode::kSub:
      case OpCode::kMul:
      case OpCode::kDiv:
      case OpCode::kMin:
      case OpCode::kMax:
        return same(2) && IsArithmetic(t.scalar) ? "" : "takes two integers or f32/f64 of its type";
      case OpCode::kRem:
        return same(2) && IsInt(t.scalar) ? "" : "takes two integers of its type";
      case OpCode::kFma:
        return same(3) && IsComputeFloat(t.scalar) ? "" : "takes three f32 or f64 of its type";
      case OpCode::kAnd:
      case OpCode::kOr:
      case OpCode::kXor:
        return same(2) && !IsFloat(t.scalar) ? "" : "takes two integers or i1 of its type";
      case OpCode::kShl:
      case OpCode::kShr:
        if (!same(1) || !IsInt(t.scalar)) return "takes one integer of its type";
        if (op.imm >= 0 && op.imm < 8 * ScalarBytes(t.scalar)) return "";
        return absl::StrCat("shift by ", op.imm, " is outside ", Name(t));
      case OpCode::kNeg:
        return same(1) && IsArithmetic(t.scalar) ? "" : "takes an integer or f32/f64";
      case OpCode::kAbs:
        return same(1) && IsArithmetic(t.scalar) && (IsSigned(t.scalar) || IsFloat(t.scalar))
                   ? ""
                   : "takes a signed integer or f32/f64";
      case OpCode::kSqrt:
      case OpCode::kFloor:
      case OpCode::kCeil:
      case OpCode::kTrunc:
      case OpCode::kRound:
        return same(1) && IsComputeFloat(t.scalar) ? "" : "takes one f32 or f64 of its type";
      case OpCode::kCmpEq:
      case OpCode::kCmpNe:
      case OpCode::kCmpLt:
      case OpCode::kCmpLe:
        if (!arity(2) || in[0] != in[1] || !IsArithmetic(in[0].scalar)) {
          return "takes two integers or f32/f64 of one type";
        }
        return t == Type{Scalar::kI1, in[0].lanes} ? "" : "gives one i1 a lane";
      case OpCode::kSelect:
        if (!arity(3) || in[0] != Type{Scalar::kI1, t.lanes}) return "takes one i1 a lane first";
        return in[1] == t && in[2] == t ? "" : "chooses between two values of its type";
      case OpCode::kCvt:
        if (!arity(1) || in[0].lanes != t.lanes) return "takes one value of as many lanes";
        if (CanConvert(in[0].scalar, t.scalar)) return "";
        return absl::StrCat("no conversion from ", Name(in[0]), " to ", Name(t));
      case OpCode::kBitcast:
        if (!arity(1) || in[0].scalar == Scalar::kI1 || t.scalar == Scalar::kI1) {
          return "takes one value, not i1";
        }
        return in[0].bytes() == t.bytes() ? "" : "keeps the size";
      case OpCode::kExtract:
        if (!arity(1) || t != Type{in[0].scalar, 1}) return "gives a lane of its operand";
        return op.imm >= 0 && op.imm < in[0].lanes ? "" : absl::StrCat("no lane ", op.imm);
      case OpCode::kInsert:
        if (!arity(2) || in[0] != t || in[1] != Type{t.scalar, 1})
          return "takes a vector and a scalar";
        return op.imm >= 0 && op.imm < t.lanes ? "" : absl::StrCat("no lane ", op.imm);
      case OpCode::kShuffle:
        return ShuffleRule(op, in);
      case OpCode::kReduceAdd:
      case OpCode::kReduceMax:
      case OpCode::kReduceMin:
        if (!arity(1) || t != Type{in[0].scalar, 1} || !IsArithmetic(t.scalar)) {
          return "folds integers or f32/f64 to a scalar";
        }
        return (in[0].lanes & (in[0].lanes - 1)) == 0 ? "" : "folds a power of two of lanes";
      case OpCode::kDot4:
        if (!same(3) || t.scalar != Scalar::kS32) return "takes three s32 vectors of its type";
        if ((t.lanes & (t.lanes - 1)) != 0) return "takes a power of two of lanes";
        return op.imm >= 1 && op.imm <= 255 ? "" : absl::StrCat("bound ", op.imm, " is not 1..255");
      case OpCode::kIf:
        return arity(1) && in[0] == Type{Scalar::kI1, 1} && t == kI64 ? "" : "takes one i1";
      case OpCode::kOnce:
        return arity(0) && t == kI64 ? "" : "takes no operand";
      case OpCode::kFor:
        return "";
    }
    return "has no rule";
  }

  static std::string ShuffleRule(const Op& op, const std::vector<Type>& in) {
    if (in.size() != 2 || in[0] != in[1] || in[0].scalar != op.type.scalar) {
      return "takes two vectors of one type and its scalar";
    }
    if (op.table.size() != op.type.lanes) return "has one table entry a lane";
    for (const int16_t lane : op.table) {
      if (lane < 0 || lane >= 2 * in[0].lanes) return absl::StrCat("picks lane ", lane, " of none");
    }
    return "";
  }

  const Kernel& k_;
  std::vector<bool> defined_;     // by any op so far
  std::vector<bool> visible_;     // in the blocks being walked
  std::vector<bool> block_used_;  // has an owner
  std::vector<bool> op_used_;
};

}  // namespace

bool IsRegion(OpCode code) {
  return code == OpCode::kFor || code == OpCode::kIf || code == OpCode::kOnce;
}

bool HasResult(OpCode code) {
  return !IsRegion(code) && code != OpCode::kStore && code != OpCode::kPrefetch;
}

bool UsesMemory(OpCode code) {
  return code == OpCode::kLoad || code == OpCode::kStore || code == OpCode::kGather ||
         code == OpCode::kPrefetch;
}

absl::Status Verify(const Kernel& kernel) { return Verifier(kernel).Run(); }

}  // namespace cuvil::kernel
