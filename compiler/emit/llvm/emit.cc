#include "compiler/emit/llvm/emit.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/module_export.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

namespace cuvil::emit {
namespace {

using kernel::Kernel;
using kernel::Op;
using kernel::OpCode;
using kernel::Scalar;
using llvm::Value;

void InitialiseLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

// Translates one kernel into one LLVM function. Lives for one EmitObject call.
class Translator {
 public:
  Translator(const Kernel& k, const Target& target, llvm::Module& module)
      : k_(k), target_(target), module_(module), context_(module.getContext()), b_(context_) {}

  void Run() {
    llvm::Type* ptr = llvm::PointerType::get(context_, 0);
    llvm::Type* i64 = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr, i64, i64}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, k_.name, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("target-features", target_.llvm_features);
    function_->addFnAttr("target-cpu", "x86-64");
    const char* width = target_.lanes == 16 ? "512" : "256";
    function_->addFnAttr("prefer-vector-width", width);
    function_->addFnAttr("min-legal-vector-width", width);
    function_->addFnAttr("no-jump-tables", "true");
    b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", function_));
    LoadArguments();
    values_.resize(k_.types.size(), nullptr);
    EmitBlock(0);
    b_.CreateRetVoid();
  }

 private:
  // Buffers do not alias: one alias scope each says so to LLVM.
  void LoadArguments() {
    llvm::MDBuilder md(context_);
    llvm::MDNode* domain = md.createAnonymousAliasScopeDomain("buffers");
    const size_t count = k_.buffers.size() + 1;
    for (size_t i = 0; i < count; ++i) scopes_.push_back(md.createAnonymousAliasScope(domain));
    for (size_t i = 0; i < count; ++i) {
      llvm::SmallVector<llvm::Metadata*> others;
      for (size_t j = 0; j < count; ++j) {
        if (j != i) others.push_back(scopes_[j]);
      }
      scope_lists_.push_back(llvm::MDNode::get(context_, {scopes_[i]}));
      noalias_lists_.push_back(llvm::MDNode::get(context_, others));
    }
    llvm::Type* ptr = llvm::PointerType::get(context_, 0);
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      buffers_.push_back(b_.CreateAlignedLoad(ptr,
                                              b_.CreateConstGEP1_64(ptr, function_->getArg(0), i),
                                              llvm::Align(8), k_.buffers[i].name));
    }
    buffers_.push_back(function_->getArg(2));
    for (size_t i = 0; i < k_.scalars.size(); ++i) {
      scalars_.push_back(b_.CreateAlignedLoad(
          b_.getInt64Ty(), b_.CreateConstGEP1_64(b_.getInt64Ty(), function_->getArg(1), i),
          llvm::Align(8), k_.scalars[i]));
    }
  }

  llvm::Type* ScalarType(Scalar s) {
    switch (s) {
      case Scalar::kI1:
        return b_.getInt1Ty();
      case Scalar::kS8:
      case Scalar::kU8:
        return b_.getInt8Ty();
      case Scalar::kS16:
      case Scalar::kU16:
      case Scalar::kBf16:
        return b_.getInt16Ty();  // bf16 arithmetic is never done: only converted
      case Scalar::kS32:
      case Scalar::kU32:
        return b_.getInt32Ty();
      case Scalar::kS64:
        return b_.getInt64Ty();
      case Scalar::kF16:
        return b_.getHalfTy();
      case Scalar::kF32:
        return b_.getFloatTy();
      case Scalar::kF64:
        return b_.getDoubleTy();
    }
    return nullptr;
  }

  llvm::Type* Ty(kernel::Type t) {
    llvm::Type* s = ScalarType(t.scalar);
    return t.lanes == 1 ? s : llvm::FixedVectorType::get(s, t.lanes);
  }

  Value* Get(kernel::Value v) { return values_[v.id]; }

  size_t BufferSlot(kernel::Buf b) {
    return b.index == kernel::kScratch ? buffers_.size() - 1 : b.index;
  }

  Value* Address(kernel::Buf b, Value* offset, int64_t disp) {
    Value* p = b_.CreateGEP(b_.getInt8Ty(), buffers_[BufferSlot(b)], offset);
    return disp == 0 ? p : b_.CreateConstGEP1_64(b_.getInt8Ty(), p, disp);
  }

  void Tag(llvm::Instruction* memory, kernel::Buf b) {
    memory->setMetadata(llvm::LLVMContext::MD_alias_scope, scope_lists_[BufferSlot(b)]);
    memory->setMetadata(llvm::LLVMContext::MD_noalias, noalias_lists_[BufferSlot(b)]);
  }

  void EmitBlock(int index) {
    for (const int op : k_.blocks[index].ops) EmitOp(k_.ops[op]);
  }

  void EmitFor(const Op& op) {
    const kernel::Block& body = k_.blocks[op.block];
    Value* begin = Get(op.in[0]);
    Value* end = Get(op.in[1]);
    llvm::BasicBlock* before = b_.GetInsertBlock();
    auto* loop = llvm::BasicBlock::Create(context_, "loop", function_);
    auto* done = llvm::BasicBlock::Create(context_, "done", function_);
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), loop, done);
    b_.SetInsertPoint(loop);
    llvm::PHINode* iv = b_.CreatePHI(b_.getInt64Ty(), 2);
    iv->addIncoming(begin, before);
    values_[body.params[0].id] = iv;
    std::vector<llvm::PHINode*> carried;
    for (size_t i = 1; i < body.params.size(); ++i) {
      llvm::PHINode* phi = b_.CreatePHI(Ty(k_.type(body.params[i])), 2);
      phi->addIncoming(Get(op.in[i + 1]), before);
      values_[body.params[i].id] = phi;
      carried.push_back(phi);
    }
    EmitBlock(op.block);
    Value* next = b_.CreateAdd(iv, b_.getInt64(op.imm), "", false, true);
    llvm::BasicBlock* latch = b_.GetInsertBlock();
    iv->addIncoming(next, latch);
    for (size_t i = 0; i < carried.size(); ++i) carried[i]->addIncoming(Get(body.yields[i]), latch);
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), loop, done);
    b_.SetInsertPoint(done);
    for (size_t i = 0; i < carried.size(); ++i) {
      llvm::PHINode* out = b_.CreatePHI(carried[i]->getType(), 2);
      out->addIncoming(Get(op.in[i + 2]), before);
      out->addIncoming(Get(body.yields[i]), latch);
      values_[op.out[i].id] = out;
    }
  }

  void EmitGuarded(const Op& op, Value* cond) {
    auto* body = llvm::BasicBlock::Create(context_, "then", function_);
    auto* done = llvm::BasicBlock::Create(context_, "endif", function_);
    b_.CreateCondBr(cond, body, done);
    b_.SetInsertPoint(body);
    EmitBlock(op.block);
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  void EmitOp(const Op& op) {
    switch (op.code) {
      case OpCode::kFor:
        return EmitFor(op);
      case OpCode::kIf:
        return EmitGuarded(op, Get(op.in[0]));
      case OpCode::kOnce:
        return EmitGuarded(op, b_.CreateICmpNE(function_->getArg(4), b_.getInt64(0)));
      case OpCode::kStore: {
        auto* store = b_.CreateAlignedStore(Get(op.in[0]), Address(op.buf, Get(op.in[1]), op.imm),
                                            llvm::Align(1));
        Tag(store, op.buf);
        return;
      }
      case OpCode::kPrefetch: {
        llvm::Type* ptr = llvm::PointerType::get(context_, 0);
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ptr},
                           {Address(op.buf, Get(op.in[0]), op.imm), b_.getInt32(0), b_.getInt32(3),
                            b_.getInt32(1)});
        return;
      }
      default:
        values_[op.out[0].id] = EmitValue(op);
    }
  }

  Value* EmitConst(const Op& op) {
    llvm::Constant* c = nullptr;
    if (op.type.scalar == Scalar::kBf16) {
      llvm::APFloat v(op.fimm);
      bool inexact = false;
      v.convert(llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven, &inexact);
      c = llvm::ConstantInt::get(context_, v.bitcastToAPInt());
    } else if (kernel::IsFloat(op.type.scalar)) {
      c = llvm::ConstantFP::get(ScalarType(op.type.scalar), op.fimm);
    } else {
      c = llvm::ConstantInt::get(ScalarType(op.type.scalar), op.imm, true);
    }
    if (op.type.lanes == 1) return c;
    return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(op.type.lanes), c);
  }

  Value* EmitIota(kernel::Type t) {
    llvm::SmallVector<llvm::Constant*> lanes;
    for (int i = 0; i < t.lanes; ++i) {
      lanes.push_back(kernel::IsFloat(t.scalar) ? llvm::ConstantFP::get(ScalarType(t.scalar), i)
                                                : llvm::ConstantInt::get(ScalarType(t.scalar), i));
    }
    return t.lanes == 1 ? lanes[0] : llvm::ConstantVector::get(lanes);
  }

  Value* EmitGather(const Op& op) {
    Value* index = Get(op.in[1]);
    const int size = static_cast<int>(Ty({op.type.scalar, 1})->getScalarSizeInBits() / 8);
    Value* out = llvm::PoisonValue::get(Ty(op.type));
    for (int lane = 0; lane < op.type.lanes; ++lane) {
      Value* i = op.type.lanes == 1 ? index : b_.CreateExtractElement(index, lane);
      const bool is_signed = kernel::IsSigned(k_.type(op.in[1]).scalar);
      i = is_signed ? b_.CreateSExtOrTrunc(i, b_.getInt64Ty())
                    : b_.CreateZExtOrTrunc(i, b_.getInt64Ty());
      Value* offset = b_.CreateAdd(Get(op.in[0]), b_.CreateMul(i, b_.getInt64(size)));
      auto* load = b_.CreateAlignedLoad(ScalarType(op.type.scalar), Address(op.buf, offset, op.imm),
                                        llvm::Align(1));
      Tag(load, op.buf);
      if (op.type.lanes == 1) return load;
      out = b_.CreateInsertElement(out, load, lane);
    }
    return out;
  }

  Value* Halves(Value* v, int lanes, bool high) {
    llvm::SmallVector<int> mask;
    for (int i = 0; i < lanes / 2; ++i) mask.push_back(high ? i + lanes / 2 : i);
    return b_.CreateShuffleVector(v, mask);
  }

  Value* EmitReduce(const Op& op) {
    Value* v = Get(op.in[0]);
    const kernel::Type t = k_.type(op.in[0]);
    for (int lanes = t.lanes; lanes > 1; lanes /= 2) {
      Value* lo = Halves(v, lanes, false);
      Value* hi = Halves(v, lanes, true);
      if (op.code == OpCode::kReduceAdd) {
        v = kernel::IsFloat(t.scalar) ? b_.CreateFAdd(lo, hi) : b_.CreateAdd(lo, hi);
      } else {
        v = MinMax(op.code == OpCode::kReduceMax, t.scalar, lo, hi);
      }
    }
    return t.lanes == 1 ? v : b_.CreateExtractElement(v, uint64_t{0});
  }

  Value* MinMax(bool max, Scalar s, Value* a, Value* b) {
    Value* cond;
    if (kernel::IsFloat(s)) {
      cond = max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b);
    } else if (kernel::IsSigned(s)) {
      cond = max ? b_.CreateICmpSGT(a, b) : b_.CreateICmpSLT(a, b);
    } else {
      cond = max ? b_.CreateICmpUGT(a, b) : b_.CreateICmpULT(a, b);
    }
    return b_.CreateSelect(cond, a, b);
  }

  // c + sum of u8 * s8 products, for as many lanes as one instruction takes.
  Value* Dot4Native(Value* c, Value* a, Value* w, int lanes, int byte_max) {
    llvm::Type* bytes = llvm::FixedVectorType::get(b_.getInt8Ty(), lanes * 4);
    llvm::Type* shorts = llvm::FixedVectorType::get(b_.getInt16Ty(), lanes * 2);
    llvm::Type* ints = llvm::FixedVectorType::get(b_.getInt32Ty(), lanes);
    if (target_.vnni) {
      const auto id = lanes == 16  ? llvm::Intrinsic::x86_avx512_vpdpbusd_512
                      : lanes == 8 ? llvm::Intrinsic::x86_avx512_vpdpbusd_256
                                   : llvm::Intrinsic::x86_avx512_vpdpbusd_128;
      return b_.CreateIntrinsic(id, {}, {c, a, w});
    }
    const auto madd_words = lanes == 16  ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                            : lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                         : llvm::Intrinsic::x86_sse2_pmadd_wd;
    auto words = [&](Value* x, Value* y) { return b_.CreateIntrinsic(madd_words, {}, {x, y}); };
    if (byte_max <= 128) {
      // Two products of at most 128 * 128 each fit s16 up to a bound of 127; 128 * -128 * 2 fits
      // too.
      const auto madd_bytes = lanes == 16  ? llvm::Intrinsic::x86_avx512_pmaddubs_w_512
                              : lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_ub_sw
                                           : llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128;
      if (byte_max <= 127) {
        Value* pairs = b_.CreateIntrinsic(madd_bytes, {},
                                          {b_.CreateBitCast(a, bytes), b_.CreateBitCast(w, bytes)});
        return b_.CreateAdd(c, words(pairs, llvm::ConstantInt::get(shorts, 1)));
      }
    }
    // Larger bytes would saturate: widen even and odd bytes to s16 and multiply those.
    Value* a16 = b_.CreateBitCast(a, shorts);
    Value* w16 = b_.CreateBitCast(w, shorts);
    Value* a_even = b_.CreateAnd(a16, llvm::ConstantInt::get(shorts, 0xff));
    Value* a_odd = b_.CreateLShr(a16, llvm::ConstantInt::get(shorts, 8));
    Value* w_even = b_.CreateAShr(b_.CreateShl(w16, llvm::ConstantInt::get(shorts, 8)),
                                  llvm::ConstantInt::get(shorts, 8));
    Value* w_odd = b_.CreateAShr(w16, llvm::ConstantInt::get(shorts, 8));
    (void)ints;
    return b_.CreateAdd(c, b_.CreateAdd(words(a_even, w_even), words(a_odd, w_odd)));
  }

  Value* Dot4Scalar(Value* c, Value* a, Value* w) {
    Value* sum = c;
    for (int i = 0; i < 4; ++i) {
      Value* x = b_.CreateAnd(b_.CreateLShr(a, 8 * i), b_.getInt32(0xff));
      Value* y = b_.CreateAShr(b_.CreateShl(w, 24 - 8 * i), 24);
      sum = b_.CreateAdd(sum, b_.CreateMul(x, y));
    }
    return sum;
  }

  Value* EmitDot4(const Op& op) {
    Value *c = Get(op.in[0]), *a = Get(op.in[1]), *w = Get(op.in[2]);
    const int lanes = op.type.lanes;
    const int native = std::min(lanes, target_.lanes);
    if (lanes < 4) {
      if (lanes == 1) return Dot4Scalar(c, a, w);
      Value* out = llvm::PoisonValue::get(Ty(op.type));
      for (int i = 0; i < lanes; ++i) {
        out = b_.CreateInsertElement(
            out,
            Dot4Scalar(b_.CreateExtractElement(c, i), b_.CreateExtractElement(a, i),
                       b_.CreateExtractElement(w, i)),
            i);
      }
      return out;
    }
    if (lanes == native) return Dot4Native(c, a, w, lanes, op.imm);
    // Wider than a register: by register, then joined.
    std::vector<Value*> parts;
    for (int first = 0; first < lanes; first += native) {
      llvm::SmallVector<int> mask;
      for (int i = 0; i < native; ++i) mask.push_back(first + i);
      auto part = [&](Value* v) { return b_.CreateShuffleVector(v, mask); };
      parts.push_back(Dot4Native(part(c), part(a), part(w), native, op.imm));
    }
    while (parts.size() > 1) {
      std::vector<Value*> joined;
      for (size_t i = 0; i + 1 < parts.size(); i += 2) {
        const int n = llvm::cast<llvm::FixedVectorType>(parts[i]->getType())->getNumElements();
        llvm::SmallVector<int> mask;
        for (int j = 0; j < 2 * n; ++j) mask.push_back(j);
        joined.push_back(b_.CreateShuffleVector(parts[i], parts[i + 1], mask));
      }
      parts = std::move(joined);
    }
    return parts[0];
  }

  // f32 to bf16 bits, to nearest even, NaN kept: no target here has it as one exact instruction.
  Value* ToBf16(Value* f, int lanes) {
    llvm::Type* i32 = Ty({Scalar::kS32, static_cast<uint16_t>(lanes)});
    llvm::Type* i16 = Ty({Scalar::kS16, static_cast<uint16_t>(lanes)});
    auto c = [&](uint32_t v) { return llvm::ConstantInt::get(i32, v); };
    Value* bits = b_.CreateBitCast(f, i32);
    Value* high = b_.CreateLShr(bits, c(16));
    Value* rounded =
        b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(c(0x7fff), b_.CreateAnd(high, c(1)))), c(16));
    Value* nan = b_.CreateFCmpUNO(f, f);
    return b_.CreateTrunc(b_.CreateSelect(nan, b_.CreateOr(high, c(0x40)), rounded), i16);
  }

  Value* FromBf16(Value* h, int lanes) {
    llvm::Type* i32 = Ty({Scalar::kS32, static_cast<uint16_t>(lanes)});
    Value* wide = b_.CreateShl(b_.CreateZExt(h, i32), llvm::ConstantInt::get(i32, 16));
    return b_.CreateBitCast(wide, Ty({Scalar::kF32, static_cast<uint16_t>(lanes)}));
  }

  Value* EmitCvt(const Op& op) {
    Value* v = Get(op.in[0]);
    const kernel::Type from = k_.type(op.in[0]);
    const int lanes = from.lanes;
    Scalar source = from.scalar;
    if (source == Scalar::kBf16) {
      v = FromBf16(v, lanes);
      source = Scalar::kF32;
      if (op.type.scalar == Scalar::kF32) return v;
    }
    if (op.type.scalar == Scalar::kBf16) {
      if (source != Scalar::kF32) v = Convert(v, source, {Scalar::kF32, op.type.lanes});
      return ToBf16(v, lanes);
    }
    return Convert(v, source, op.type);
  }

  Value* Convert(Value* v, Scalar from, kernel::Type to) {
    llvm::Type* t = Ty(to);
    const bool from_float = kernel::IsFloat(from), to_float = kernel::IsFloat(to.scalar);
    if (from_float && to_float) return b_.CreateFPCast(v, t);
    if (from_float)
      return kernel::IsSigned(to.scalar) ? b_.CreateFPToSI(v, t) : b_.CreateFPToUI(v, t);
    if (to_float) return kernel::IsSigned(from) ? b_.CreateSIToFP(v, t) : b_.CreateUIToFP(v, t);
    return kernel::IsSigned(from) ? b_.CreateSExtOrTrunc(v, t) : b_.CreateZExtOrTrunc(v, t);
  }

  Value* EmitCompare(const Op& op) {
    Value *a = Get(op.in[0]), *c = Get(op.in[1]);
    const Scalar s = k_.type(op.in[0]).scalar;
    const bool f = kernel::IsFloat(s), g = kernel::IsSigned(s);
    switch (op.code) {
      case OpCode::kCmpEq:
        return f ? b_.CreateFCmpOEQ(a, c) : b_.CreateICmpEQ(a, c);
      case OpCode::kCmpNe:
        return f ? b_.CreateFCmpUNE(a, c) : b_.CreateICmpNE(a, c);
      case OpCode::kCmpLt:
        return f ? b_.CreateFCmpOLT(a, c) : g ? b_.CreateICmpSLT(a, c) : b_.CreateICmpULT(a, c);
      default:
        return f ? b_.CreateFCmpOLE(a, c) : g ? b_.CreateICmpSLE(a, c) : b_.CreateICmpULE(a, c);
    }
  }

  Value* EmitArithmetic(const Op& op) {
    Value *a = Get(op.in[0]), *c = Get(op.in[1]);
    const Scalar s = op.type.scalar;
    const bool f = kernel::IsFloat(s), g = kernel::IsSigned(s);
    switch (op.code) {
      case OpCode::kAdd:
        return f ? b_.CreateFAdd(a, c) : b_.CreateAdd(a, c);
      case OpCode::kSub:
        return f ? b_.CreateFSub(a, c) : b_.CreateSub(a, c);
      case OpCode::kMul:
        return f ? b_.CreateFMul(a, c) : b_.CreateMul(a, c);
      case OpCode::kDiv:
        return f ? b_.CreateFDiv(a, c) : g ? b_.CreateSDiv(a, c) : b_.CreateUDiv(a, c);
      case OpCode::kRem:
        return g ? b_.CreateSRem(a, c) : b_.CreateURem(a, c);
      case OpCode::kMin:
        return MinMax(false, s, a, c);
      case OpCode::kMax:
        return MinMax(true, s, a, c);
      case OpCode::kAnd:
        return b_.CreateAnd(a, c);
      case OpCode::kOr:
        return b_.CreateOr(a, c);
      default:
        return b_.CreateXor(a, c);
    }
  }

  Value* EmitUnary(const Op& op) {
    Value* a = Get(op.in[0]);
    const bool f = kernel::IsFloat(op.type.scalar);
    switch (op.code) {
      case OpCode::kNeg:
        return f ? b_.CreateFNeg(a) : b_.CreateNeg(a);
      case OpCode::kAbs:
        return f ? b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a)
                 : static_cast<Value*>(
                       b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse()));
      case OpCode::kSqrt:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
      case OpCode::kFloor:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
      case OpCode::kCeil:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
      case OpCode::kTrunc:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
      default:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, a);
    }
  }

  Value* EmitValue(const Op& op) {
    switch (op.code) {
      case OpCode::kConst:
        return EmitConst(op);
      case OpCode::kScalarArg:
        return scalars_[op.imm];
      case OpCode::kTile:
        return function_->getArg(3);
      case OpCode::kIota:
        return EmitIota(op.type);
      case OpCode::kSplat:
        return b_.CreateVectorSplat(op.type.lanes, Get(op.in[0]));
      case OpCode::kLoad: {
        auto* load = b_.CreateAlignedLoad(Ty(op.type), Address(op.buf, Get(op.in[0]), op.imm),
                                          llvm::Align(1));
        Tag(load, op.buf);
        return load;
      }
      case OpCode::kGather:
        return EmitGather(op);
      case OpCode::kFma:
        return b_.CreateIntrinsic(llvm::Intrinsic::fma, {Ty(op.type)},
                                  {Get(op.in[0]), Get(op.in[1]), Get(op.in[2])});
      case OpCode::kShl:
        return b_.CreateShl(Get(op.in[0]), op.imm);
      case OpCode::kShr:
        return kernel::IsSigned(op.type.scalar) ? b_.CreateAShr(Get(op.in[0]), op.imm)
                                                : b_.CreateLShr(Get(op.in[0]), op.imm);
      case OpCode::kNeg:
      case OpCode::kAbs:
      case OpCode::kSqrt:
      case OpCode::kFloor:
      case OpCode::kCeil:
      case OpCode::kTrunc:
      case OpCode::kRound:
        return EmitUnary(op);
      case OpCode::kCmpEq:
      case OpCode::kCmpNe:
      case OpCode::kCmpLt:
      case OpCode::kCmpLe:
        return EmitCompare(op);
      case OpCode::kSelect:
        return b_.CreateSelect(Get(op.in[0]), Get(op.in[1]), Get(op.in[2]));
      case OpCode::kCvt:
        return EmitCvt(op);
      case OpCode::kBitcast:
        return b_.CreateBitCast(Get(op.in[0]), Ty(op.type));
      case OpCode::kExtract:
        return k_.type(op.in[0]).lanes == 1 ? Get(op.in[0])
                                            : b_.CreateExtractElement(Get(op.in[0]), op.imm);
      case OpCode::kInsert:
        return op.type.lanes == 1 ? Get(op.in[1])
                                  : b_.CreateInsertElement(Get(op.in[0]), Get(op.in[1]), op.imm);
      case OpCode::kShuffle:
        return EmitShuffle(op);
      case OpCode::kReduceAdd:
      case OpCode::kReduceMax:
      case OpCode::kReduceMin:
        return EmitReduce(op);
      case OpCode::kDot4:
        return EmitDot4(op);
      default:
        return EmitArithmetic(op);
    }
  }

  Value* EmitShuffle(const Op& op) {
    Value *a = Get(op.in[0]), *c = Get(op.in[1]);
    const int lanes = k_.type(op.in[0]).lanes;
    if (lanes == 1) {
      Value* out = op.type.lanes == 1 ? nullptr : llvm::PoisonValue::get(Ty(op.type));
      for (size_t i = 0; i < op.table.size(); ++i) {
        Value* lane = op.table[i] == 0 ? a : c;
        if (out == nullptr) return lane;
        out = b_.CreateInsertElement(out, lane, i);
      }
      return out;
    }
    llvm::SmallVector<int> mask(op.table.begin(), op.table.end());
    Value* out = b_.CreateShuffleVector(a, c, mask);
    return op.type.lanes == 1 ? b_.CreateExtractElement(out, uint64_t{0}) : out;
  }

  const Kernel& k_;
  const Target& target_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  std::vector<Value*> values_, buffers_, scalars_;
  std::vector<llvm::MDNode*> scopes_, scope_lists_, noalias_lists_;
};

std::unique_ptr<llvm::TargetMachine> MakeTargetMachine(const Target& target) {
  std::string error;
  const std::string triple = "x86_64-unknown-linux-gnu";
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(triple, error);
  CUVIL_CHECK(t != nullptr, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      t->createTargetMachine(triple, "x86-64", target.llvm_features, options, llvm::Reloc::PIC_,
                             llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

absl::Status Optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager cgscc;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(cgscc);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, cgscc, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error e =
          builder.parsePassPipeline(passes,
                                    "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,"
                                    "loop-mssa(licm),early-cse<memssa>,adce)")) {
    return absl::InternalError(absl::StrCat("LLVM pass list: ", llvm::toString(std::move(e))));
  }
  passes.run(module, modules);
  return absl::OkStatus();
}

absl::StatusOr<Emitted> Emit(const Kernel& kernel, const Target& target,
                             const EmitOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  InitialiseLlvm();
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  std::unique_ptr<llvm::TargetMachine> machine = MakeTargetMachine(target);
  module.setDataLayout(machine->createDataLayout());
  module.setTargetTriple(machine->getTargetTriple().str());
  Translator(kernel, target, module).Run();
  std::string problems;
  llvm::raw_string_ostream problem_stream(problems);
  if (llvm::verifyModule(module, &problem_stream)) {
    return absl::InternalError(
        absl::StrCat("kernel '", kernel.name, "' became invalid LLVM IR: ", problems));
  }
  RETURN_IF_ERROR(Optimise(module, *machine));
  Emitted out;
  if (options.want_ir) {
    llvm::raw_string_ostream stream(out.llvm_ir);
    module.print(stream, nullptr);
  }
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return absl::InternalError("LLVM cannot emit objects for this target");
  }
  codegen.run(module);
  out.object.assign(object.begin(), object.end());
  out.ir_ops = static_cast<int>(kernel.ops.size());
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace

CUVIL_MODULE_EXPORT const Emitter cuvil_emitter{&Emit};

}  // namespace cuvil::emit
