#include "compiler/kernel/text.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "compiler/kernel/verify.h"

namespace cuvil::kernel {
namespace {

bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordChar(char c) {
  return IsWordStart(c) || (c >= '0' && c <= '9') || c == '.' || c == ':' || c == '-';
}

std::string Quoted(std::string_view name) {
  bool plain = !name.empty() && IsWordStart(name[0]);
  for (const char c : name) plain = plain && IsWordChar(c);
  if (plain) return std::string(name);
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += absl::StrFormat("\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return out + "\"";
}

std::string FloatText(double v) {
  if (std::isnan(v)) {
    const uint64_t bits = std::bit_cast<uint64_t>(v);
    if (bits == 0x7ff8000000000000) return "nan";
    return absl::StrFormat("bits 0x%016x", bits);
  }
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), v);
  return std::string(buffer, result.ptr);
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : k_(kernel) {}

  std::string Run() {
    out_ = absl::StrCat("kernel ", Quoted(k_.name), " {\n");
    for (const BufferArg& b : k_.buffers) {
      absl::StrAppend(&out_, "  buffer ", Quoted(b.name), b.written ? " written\n" : "\n");
    }
    for (const std::string& s : k_.scalars) absl::StrAppend(&out_, "  scalar ", Quoted(s), "\n");
    if (k_.scratch_bytes != 0) absl::StrAppend(&out_, "  scratch ", k_.scratch_bytes, "\n");
    if (out_.find('\n') + 1 != out_.size()) out_ += "\n";
    PrintBlock(0, 1);
    return std::move(out_) + "}\n";
  }

  std::string OpText(const Op& op) const {
    std::string s;
    for (size_t i = 0; i < op.out.size(); ++i) absl::StrAppend(&s, i ? ", %" : "%", op.out[i].id);
    if (HasResult(op.code)) absl::StrAppend(&s, " : ", TypeName(op.type));
    if (!op.out.empty()) s += " = ";
    absl::StrAppend(&s, Sv(OpName(op.code)));
    if (op.code == OpCode::kFor) return s + ForHead(op);
    if (UsesMemory(op.code)) return s + " " + Access(op);
    for (size_t i = 0; i < op.in.size(); ++i) absl::StrAppend(&s, i ? ", %" : " %", op.in[i].id);
    return s + Immediate(op);
  }

 private:
  std::string ForHead(const Op& op) const {
    const Block& body = k_.blocks[op.block];
    std::string s = absl::StrCat(" %", body.params[0].id, " = %", op.in[0].id, " to %", op.in[1].id,
                                 " step ", op.imm);
    for (size_t i = 2; i < op.in.size(); ++i) {
      absl::StrAppend(&s, i == 2 ? " carry (%" : ", %", body.params[i - 1].id, " = %", op.in[i].id);
    }
    return op.in.size() > 2 ? s + ")" : s;
  }

  std::string Access(const Op& op) const {
    const Value offset = op.in[op.code == OpCode::kStore ? 1 : 0];
    const std::string name =
        op.buf.index == kScratch ? "scratch" : Quoted(k_.buffers[op.buf.index].name);
    std::string s = absl::StrCat(name, "[%", offset.id, " + ", op.imm, "]");
    if (op.code == OpCode::kStore) absl::StrAppend(&s, ", %", op.in[0].id);
    if (op.code == OpCode::kGather) absl::StrAppend(&s, ", %", op.in[1].id);
    return s;
  }

  std::string Immediate(const Op& op) const {
    switch (op.code) {
      case OpCode::kConst:
        return " " + (IsFloat(op.type.scalar) ? FloatText(op.fimm) : absl::StrCat(op.imm));
      case OpCode::kScalarArg:
        return " " + Quoted(k_.scalars[op.imm]);
      case OpCode::kShl:
      case OpCode::kShr:
      case OpCode::kExtract:
      case OpCode::kInsert:
      case OpCode::kDot4:
        return absl::StrCat(", ", op.imm);
      case OpCode::kShuffle: {
        std::string s = ", [";
        for (size_t i = 0; i < op.table.size(); ++i) {
          absl::StrAppend(&s, i ? ", " : "", op.table[i]);
        }
        return s + "]";
      }
      default:
        return "";
    }
  }

  void PrintBlock(int index, int depth) {  // Verify bounds the depth
    const std::string indent(2 * depth, ' ');
    for (const int i : k_.blocks[index].ops) {
      const Op& op = k_.ops[i];
      absl::StrAppend(&out_, indent, OpText(op));
      if (IsRegion(op.code)) {
        out_ += " {\n";
        PrintBlock(op.block, depth + 1);
        absl::StrAppend(&out_, indent, "}");
      }
      out_ += "\n";
    }
    const std::vector<Value>& yields = k_.blocks[index].yields;
    for (size_t i = 0; i < yields.size(); ++i) {
      absl::StrAppend(&out_, i == 0 ? indent + "yield %" : ", %", yields[i].id);
    }
    if (!yields.empty()) out_ += "\n";
  }

  const Kernel& k_;
  std::string out_;
};

}  // namespace

std::string TypeName(Type t) {
  return t.lanes == 1 ? std::string(ScalarName(t.scalar))
                      : absl::StrCat(Sv(ScalarName(t.scalar)), "x", t.lanes);
}

std::string Print(const Kernel& kernel) { return Printer(kernel).Run(); }

std::string PrintOp(const Kernel& kernel, int op) { return Printer(kernel).OpText(kernel.ops[op]); }

}  // namespace cuvil::kernel
