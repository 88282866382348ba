#include <bit>
#include <charconv>
#include <utility>

#include "compiler/kernel/text.h"
#include "compiler/kernel/text_lexer.h"
#include "compiler/kernel/verify.h"

namespace cuvil::kernel {
namespace {

// A value after one of the others belongs to the next statement.
bool TakesOperands(OpCode code) {
  return code != OpCode::kConst && code != OpCode::kScalarArg && code != OpCode::kTile &&
         code != OpCode::kIota;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  absl::StatusOr<Kernel> Run() {
    RETURN_IF_ERROR(Advance());
    RETURN_IF_ERROR(ExpectWord("kernel"));
    ASSIGN_OR_RETURN(k_.name, Name());
    RETURN_IF_ERROR(Expect("{"));
    RETURN_IF_ERROR(Header());
    k_.blocks.emplace_back();
    RETURN_IF_ERROR(Body(0, 1));
    if (token_.kind != Token::kEnd) return Fail("text after the kernel");
    RETURN_IF_ERROR(Verify(k_));
    return std::move(k_);
  }

 private:
  absl::Status Fail(const std::string& why) const { return TextError(token_.line, why); }

  absl::Status Advance() {
    ASSIGN_OR_RETURN(token_, lexer_.Next());
    return absl::OkStatus();
  }

  bool At(std::string_view punct) const {
    return token_.kind == Token::kPunct && token_.text == punct;
  }
  bool AtWord(std::string_view word) const {
    return token_.kind == Token::kWord && token_.text == word;
  }

  absl::Status Expect(std::string_view punct) {
    if (!At(punct)) return Fail(absl::StrCat("expected '", Sv(punct), "'"));
    return Advance();
  }

  absl::Status ExpectWord(std::string_view word) {
    if (!AtWord(word)) return Fail(absl::StrCat("expected '", Sv(word), "'"));
    return Advance();
  }

  absl::StatusOr<std::string> Name() {
    if (token_.kind != Token::kWord && token_.kind != Token::kString)
      return Fail("expected a name");
    std::string name = std::move(token_.text);
    RETURN_IF_ERROR(Advance());
    return name;
  }

  absl::StatusOr<int64_t> Integer() {
    int64_t v = 0;
    if (token_.kind != Token::kNumber || !ReadNumber(token_.text, &v)) {
      return Fail("expected an integer");
    }
    RETURN_IF_ERROR(Advance());
    return v;
  }

  absl::StatusOr<double> Float() {
    double v = 0;
    if (AtWord("bits")) {
      RETURN_IF_ERROR(Advance());
      uint64_t bits = 0;
      const std::string_view s = token_.text;
      if (token_.kind != Token::kNumber || !s.starts_with("0x") || s.size() != 18 ||
          std::from_chars(s.data() + 2, s.data() + 18, bits, 16).ptr != s.data() + 18) {
        return Fail("expected 0x and 16 digits after 'bits'");
      }
      v = std::bit_cast<double>(bits);
    } else if (AtWord("nan")) {
      v = std::bit_cast<double>(uint64_t{0x7ff8000000000000});
    } else if (!(AtWord("inf") || token_.kind == Token::kNumber) || !ReadNumber(token_.text, &v)) {
      return Fail("expected a number");
    }
    RETURN_IF_ERROR(Advance());
    return v;
  }

  absl::StatusOr<Value> Use() {
    if (token_.kind != Token::kValue) return Fail("expected a value");
    const Value v{token_.id};
    RETURN_IF_ERROR(Advance());
    return v;
  }

  absl::StatusOr<Type> ReadType() {
    if (token_.kind != Token::kWord) return Fail("expected a type");
    const std::string_view s = token_.text;
    const size_t x = s.find('x');
    for (int i = 0; i <= static_cast<int>(Scalar::kF64); ++i) {
      if (ScalarName(static_cast<Scalar>(i)) != s.substr(0, x)) continue;
      Type t{static_cast<Scalar>(i), 1};
      if (x != s.npos && !ReadNumber(s.substr(x + 1), &t.lanes)) break;
      RETURN_IF_ERROR(Advance());
      return t;
    }
    return Fail(absl::StrCat("unknown type '", token_.text, "'"));
  }

  // The types of `for` results come from its operands, so those must be typed already.
  void SetType(Value v, Type t) {
    if (v.id >= k_.types.size()) k_.types.resize(v.id + 1);
    if (v.id >= typed_.size()) typed_.resize(v.id + 1);
    k_.types[v.id] = t;
    typed_[v.id] = true;
  }
  bool Typed(Value v) const { return v.id < typed_.size() && typed_[v.id]; }

  absl::Status Header() {
    while (true) {
      if (AtWord("buffer")) {
        RETURN_IF_ERROR(Advance());
        BufferArg b;
        ASSIGN_OR_RETURN(b.name, Name());
        if (AtWord("written")) {
          b.written = true;
          RETURN_IF_ERROR(Advance());
        }
        k_.buffers.push_back(std::move(b));
        if (k_.buffers.size() > kBuffersMax) return Fail("too many buffers");
      } else if (AtWord("scalar")) {
        RETURN_IF_ERROR(Advance());
        ASSIGN_OR_RETURN(std::string name, Name());
        k_.scalars.push_back(std::move(name));
        if (k_.scalars.size() > kScalarsMax) return Fail("too many scalars");
      } else if (AtWord("scratch")) {
        RETURN_IF_ERROR(Advance());
        ASSIGN_OR_RETURN(k_.scratch_bytes, Integer());
      } else {
        return absl::OkStatus();
      }
    }
  }

  // Statements up to and including the closing brace.
  absl::Status Body(int block, int depth) {
    if (depth > kNestingMax) return Fail(absl::StrCat("blocks nest over ", kNestingMax, " deep"));
    while (!At("}")) {
      if (AtWord("yield")) {
        RETURN_IF_ERROR(Advance());
        ASSIGN_OR_RETURN(k_.blocks[block].yields, Uses());
        break;
      }
      RETURN_IF_ERROR(Statement(block, depth));
    }
    return Expect("}");
  }

  absl::StatusOr<std::vector<Value>> Uses() {
    std::vector<Value> values;
    while (token_.kind == Token::kValue) {
      values.push_back(Value{token_.id});
      RETURN_IF_ERROR(Advance());
      if (!At(",")) break;
      RETURN_IF_ERROR(Advance());
    }
    return values;
  }

  absl::Status Statement(int block, int depth) {
    Op op{};
    bool typed = false;
    if (token_.kind == Token::kValue) {
      ASSIGN_OR_RETURN(op.out, Uses());
      if (At(":")) {
        RETURN_IF_ERROR(Advance());
        ASSIGN_OR_RETURN(op.type, ReadType());
        typed = true;
      }
      RETURN_IF_ERROR(Expect("="));
    }
    if (token_.kind != Token::kWord) return Fail("expected an op");
    int code = 0;
    while (code < kOpCount && OpName(static_cast<OpCode>(code)) != token_.text) ++code;
    if (code == kOpCount) return Fail(absl::StrCat("unknown op '", token_.text, "'"));
    op.code = static_cast<OpCode>(code);
    RETURN_IF_ERROR(Advance());
    if (HasResult(op.code) != typed) {
      return Fail(typed ? "this op has no typed result" : "this op has one typed result");
    }
    if (IsRegion(op.code)) {
      RETURN_IF_ERROR(Region(&op, depth));
    } else if (UsesMemory(op.code)) {
      RETURN_IF_ERROR(Access(&op));
    } else {
      if (TakesOperands(op.code)) {
        ASSIGN_OR_RETURN(op.in, Uses());
      }
      RETURN_IF_ERROR(Immediate(&op));
    }
    if (typed) {
      for (const Value v : op.out) SetType(v, op.type);
    }
    k_.ops.push_back(std::move(op));
    k_.blocks[block].ops.push_back(static_cast<int>(k_.ops.size()) - 1);
    return absl::OkStatus();
  }

  absl::Status Immediate(Op* op) {
    switch (op->code) {
      case OpCode::kConst: {
        if (IsFloat(op->type.scalar)) {
          ASSIGN_OR_RETURN(op->fimm, Float());
        } else {
          ASSIGN_OR_RETURN(op->imm, Integer());
        }
        return absl::OkStatus();
      }
      case OpCode::kScalarArg: {
        ASSIGN_OR_RETURN(const std::string name, Name());
        for (size_t i = 0; i < k_.scalars.size(); ++i) {
          op->imm = static_cast<int64_t>(i);
          if (k_.scalars[i] == name) return absl::OkStatus();
        }
        return Fail(absl::StrCat("unknown scalar '", name, "'"));
      }
      case OpCode::kShl:
      case OpCode::kShr:
      case OpCode::kExtract:
      case OpCode::kInsert:
      case OpCode::kDot4: {
        ASSIGN_OR_RETURN(op->imm, Integer());
        return absl::OkStatus();
      }
      case OpCode::kShuffle:
        return Table(op);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status Table(Op* op) {
    RETURN_IF_ERROR(Expect("["));
    while (!At("]")) {
      ASSIGN_OR_RETURN(const int64_t lane, Integer());
      if (lane < 0 || lane >= 2 * kLanesMax) return Fail("a shuffle lane is out of range");
      op->table.push_back(static_cast<int16_t>(lane));
      if (op->table.size() > kLanesMax) return Fail("a shuffle table is too long");
      if (!At(",")) break;
      RETURN_IF_ERROR(Advance());
    }
    return Expect("]");
  }

  // name[%offset + imm], then the stored value or the indices.
  absl::Status Access(Op* op) {
    ASSIGN_OR_RETURN(const std::string name, Name());
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      if (k_.buffers[i].name == name) op->buf.index = static_cast<uint32_t>(i);
    }
    if (name == "scratch") op->buf.index = kScratch;
    if (op->buf.index == Buf{}.index) return Fail(absl::StrCat("unknown buffer '", name, "'"));
    RETURN_IF_ERROR(Expect("["));
    ASSIGN_OR_RETURN(const Value offset, Use());
    RETURN_IF_ERROR(Expect("+"));
    ASSIGN_OR_RETURN(op->imm, Integer());
    RETURN_IF_ERROR(Expect("]"));
    op->in = {offset};
    if (op->code == OpCode::kStore || op->code == OpCode::kGather) {
      RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(const Value v, Use());
      op->in.insert(op->code == OpCode::kStore ? op->in.begin() : op->in.end(), v);
      if (op->code == OpCode::kStore) {
        if (!Typed(v)) return Fail(absl::StrCat("%", v.id, " is stored before it is defined"));
        op->type = k_.types[v.id];
      }
    }
    return absl::OkStatus();
  }

  absl::Status Region(Op* op, int depth) {
    op->block = static_cast<int>(k_.blocks.size());
    k_.blocks.emplace_back();
    if (op->code == OpCode::kFor) {
      RETURN_IF_ERROR(ForHead(op));
    } else if (op->code == OpCode::kIf) {
      ASSIGN_OR_RETURN(op->in, Uses());
    }
    RETURN_IF_ERROR(Expect("{"));
    RETURN_IF_ERROR(Body(op->block, depth + 1));
    if (op->code != OpCode::kFor) return absl::OkStatus();
    for (size_t i = 0; i < op->out.size() && i + 2 < op->in.size(); ++i) {
      SetType(op->out[i], k_.types[op->in[i + 2].id]);
    }
    return absl::OkStatus();
  }

  // %iv = %begin to %end step N [carry (%x = %init, ...)]
  absl::Status ForHead(Op* op) {
    std::vector<Value> params(1);
    ASSIGN_OR_RETURN(params[0], Use());
    SetType(params[0], kI64);
    RETURN_IF_ERROR(Expect("="));
    op->in.resize(2);
    ASSIGN_OR_RETURN(op->in[0], Use());
    RETURN_IF_ERROR(ExpectWord("to"));
    ASSIGN_OR_RETURN(op->in[1], Use());
    RETURN_IF_ERROR(ExpectWord("step"));
    ASSIGN_OR_RETURN(op->imm, Integer());
    if (AtWord("carry")) {
      RETURN_IF_ERROR(Advance());
      RETURN_IF_ERROR(Expect("("));
      while (true) {
        ASSIGN_OR_RETURN(const Value x, Use());
        RETURN_IF_ERROR(Expect("="));
        ASSIGN_OR_RETURN(const Value init, Use());
        if (!Typed(init))
          return Fail(absl::StrCat("%", init.id, " is carried before it is defined"));
        SetType(x, k_.types[init.id]);
        params.push_back(x);
        op->in.push_back(init);
        if (!At(",")) break;
        RETURN_IF_ERROR(Advance());
      }
      RETURN_IF_ERROR(Expect(")"));
    }
    k_.blocks[op->block].params = std::move(params);
    return absl::OkStatus();
  }

  Lexer lexer_;
  Token token_;
  Kernel k_;
  std::vector<bool> typed_;
};

}  // namespace

absl::StatusOr<Kernel> Parse(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel text of ", text.size(), " bytes; at most ", kTextBytesMax));
  }
  return Parser(text).Run();
}

}  // namespace cuvil::kernel
