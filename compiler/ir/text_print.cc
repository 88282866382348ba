#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/half.h"
#include "compiler/ir/text.h"
#include "compiler/ir/text_number.h"
#include "compiler/ir/verify.h"

namespace cuvil::ir {
namespace {

template <typename T>
std::string Shortest(T value) {
  if (std::isnan(value)) return "nan";
  char buffer[64];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// One element of a constant; empty for a NaN.
std::string ElementText(DType dtype, const uint8_t* bytes) {
  const auto real = [](auto value) { return std::isnan(value) ? std::string() : Shortest(value); };
  switch (dtype) {
    case DType::kBool:
      return *bytes ? "true" : "false";
    case DType::kI8:
      return absl::StrCat(Load<int8_t>(bytes));
    case DType::kI16:
      return absl::StrCat(Load<int16_t>(bytes));
    case DType::kI32:
      return absl::StrCat(Load<int32_t>(bytes));
    case DType::kI64:
      return absl::StrCat(Load<int64_t>(bytes));
    case DType::kU8:
      return absl::StrCat(static_cast<int>(*bytes));
    case DType::kU16:
      return absl::StrCat(Load<uint16_t>(bytes));
    case DType::kU32:
      return absl::StrCat(Load<uint32_t>(bytes));
    case DType::kU64:
      return absl::StrCat(Load<uint64_t>(bytes));
    case DType::kF16:
      return real(F16ToF32(Load<uint16_t>(bytes)));
    case DType::kBf16:
      return real(Bf16ToF32(Load<uint16_t>(bytes)));
    case DType::kF32:
      return real(Load<float>(bytes));
    case DType::kF64:
      return real(Load<double>(bytes));
    default:
      return "";  // block types: raw bytes
  }
}

class Printer {
 public:
  Printer(const Graph& graph, bool canonical) : graph_(graph), canonical_(canonical) {}

  std::string Run() {
    Header();
    for (ValueId id : graph_.inputs()) Declare("input", id);
    for (ValueId id : graph_.weights()) Declare("weight", id);
    for (const Constant& constant : graph_.constants()) {
      Declare("constant", constant.value, &constant.bytes);
    }
    numbers_.assign(graph_.value_count(), -1);
    for (NodeId id : graph_.body()) PrintNode(id);
    for (const Output& output : graph_.outputs()) {
      absl::StrAppend(&out_, "  output ", QuotedText(output.name), " ", Ref(output.value), "\n");
    }
    out_ += "}\n";
    return std::move(out_);
  }

 private:
  void Header() {
    absl::StrAppend(&out_, "graph @", canonical_ ? "_" : graph_.name(), "(");
    std::vector<std::string> symbols;
    for (const Symbol& symbol : graph_.symbols()) {
      std::string text = absl::StrCat(symbol.name, "{", symbol.min, "..", symbol.max);
      if (!symbol.prefer.empty()) {
        absl::StrAppend(&text, ", prefer ", absl::StrJoin(symbol.prefer, ", "));
      }
      symbols.push_back(text + "}");
    }
    absl::StrAppend(&out_, absl::StrJoin(symbols, ", "), ") {\n");
  }

  void Declare(const char* section, ValueId id, const std::vector<uint8_t>* bytes = nullptr) {
    absl::StrAppend(&out_, "  ", section, " ", Ref(id));
    if (!graph_.Contains(id)) {
      out_ += "\n";
      return;
    }
    const Type& type = graph_.type(id);
    absl::StrAppend(&out_, " : ", ToString(type, graph_.symbols()));
    if (bytes != nullptr && AsTensor(type) != nullptr) {
      absl::StrAppend(&out_, " = ", PayloadText(*AsTensor(type), *bytes));
    }
    out_ += "\n";
  }

  std::string Ref(ValueId id) const {
    if (!graph_.Contains(id)) return absl::StrCat("%?", id.value);
    const Value& value = graph_.value(id);
    if (value.origin == Origin::kNode) {
      const int number = numbers_[id.value];
      return number < 0 ? absl::StrCat("%?", id.value) : absl::StrCat("%", number);
    }
    // '#' cannot start a name, so canonical constants never meet an input of the same spelling.
    if (canonical_ && value.origin == Origin::kConstant) return absl::StrCat("%#", value.index);
    return absl::StrCat("%", IsIdentifier(value.name) ? value.name : QuotedText(value.name));
  }

  std::string Definition(ValueId id) {
    if (!graph_.Contains(id)) return Ref(id);
    if (numbers_[id.value] < 0) numbers_[id.value] = next_++;
    const std::string& hint = graph_.value(id).name;
    if (canonical_ || hint.empty()) return Ref(id);
    return absl::StrCat(Ref(id), ".", IsIdentifier(hint) ? hint : QuotedText(hint));
  }

  void PrintNode(NodeId id) {
    if (!graph_.Contains(id)) {
      absl::StrAppend(&out_, "  // node ", id.value, " does not exist\n");
      return;
    }
    const Node& node = graph_.node(id);
    std::vector<std::string> inputs;  // before the outputs get numbers: a self-use must show
    std::vector<std::string> outputs;
    std::vector<std::string> types;
    for (ValueId input : node.inputs) inputs.push_back(Ref(input));
    for (ValueId output : node.outputs) {
      outputs.push_back(Definition(output));
      types.push_back(graph_.Contains(output) ? ToString(graph_.type(output), graph_.symbols())
                                              : std::string("?"));
    }
    const bool known = static_cast<int>(node.op) < kOpCount;
    absl::StrAppend(&out_, "  ", absl::StrJoin(outputs, ", "), " = ",
                    known ? Sv(NameOf(node.op)) : absl::string_view("?"));
    if (!inputs.empty()) absl::StrAppend(&out_, " ", absl::StrJoin(inputs, ", "));
    PrintAttrs(node.attrs);
    absl::StrAppend(&out_, " : ", absl::StrJoin(types, ", "));
    PrintLoc(node.loc);
    out_ += "\n";
  }

  void PrintAttrs(const Attrs& attrs) {
    if (attrs.empty()) return;
    std::vector<std::string> parts;
    for (const Attr& attr : attrs.entries()) {
      parts.push_back(absl::StrCat(attr.name, " = ", AttrText(attr.value)));
    }
    absl::StrAppend(&out_, " {", absl::StrJoin(parts, ", "), "}");
  }

  std::string AttrText(const AttrValue& value) const {
    switch (KindOf(value)) {
      case AttrKind::kInt:
        return absl::StrCat(std::get<int64_t>(value));
      case AttrKind::kFloat:
        return FloatText(std::get<double>(value));
      case AttrKind::kBool:
        return std::get<bool>(value) ? "true" : "false";
      case AttrKind::kString:
        return QuotedText(std::get<std::string>(value));
      case AttrKind::kInts:
        return absl::StrCat("[", absl::StrJoin(std::get<std::vector<int64_t>>(value), ", "), "]");
      case AttrKind::kFloats: {
        std::vector<std::string> parts;
        for (double v : std::get<std::vector<double>>(value)) parts.push_back(FloatText(v));
        return absl::StrCat("floats[", absl::StrJoin(parts, ", "), "]");
      }
      case AttrKind::kDType:
        return std::string(Info(std::get<DType>(value)).name);
      case AttrKind::kDims: {
        std::vector<std::string> parts;
        for (const Dim& dim : std::get<std::vector<Dim>>(value)) {
          parts.push_back(ToString(dim, graph_.symbols()));
        }
        return absl::StrCat("dims[", absl::StrJoin(parts, ", "), "]");
      }
    }
    return "?";
  }

  void PrintLoc(LocId loc) {
    if (canonical_ || !graph_.Contains(loc) || graph_.sources(loc).empty()) return;
    std::vector<std::string> parts;
    for (const std::string& source : graph_.sources(loc)) parts.push_back(QuotedText(source));
    absl::StrAppend(&out_, " loc(", absl::StrJoin(parts, ", "), ")");
  }

  const Graph& graph_;
  const bool canonical_;
  std::vector<int> numbers_;  // by value id; -1 before its definition
  int next_ = 0;
  std::string out_;
};

}  // namespace

std::string FloatText(double value) {
  std::string text = Shortest(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string QuotedText(std::string_view value) {
  std::string text = "\"";
  for (char c : value) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&text, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string PayloadText(const TensorType& type, const std::vector<uint8_t>& bytes) {
  std::vector<std::string> parts;
  const size_t size = Info(type.dtype).bytes;
  bool raw = IsBlock(type.dtype) || bytes.size() % size != 0;
  for (size_t at = 0; !raw && at < bytes.size(); at += size) {
    parts.push_back(ElementText(type.dtype, &bytes[at]));
    raw = parts.back().empty() || (type.dtype == DType::kBool && bytes[at] > 1);
  }
  if (!raw) return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
  const absl::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::StrCat("x\"", absl::BytesToHexString(view), "\"");
}

std::string Print(const Graph& graph) { return Printer(graph, /*canonical=*/false).Run(); }

std::string PrintCanonical(const Graph& graph) { return Printer(graph, /*canonical=*/true).Run(); }

}  // namespace cuvil::ir
