#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/half.h"
#include "compiler/ir/text.h"
#include "compiler/ir/text_lex.h"
#include "compiler/ir/verify.h"

namespace cuvil::ir {
namespace {

// The longest list of an attribute (rope frequencies, permutations, shapes) is far below this.
constexpr size_t kListMax = 65536;
constexpr size_t kNodeValuesMax = 512;
constexpr size_t kLocSourcesMax = 65536;  // a fused node of a whole model still fits

template <typename T>
void Store(T value, std::vector<uint8_t>* bytes) {
  const size_t at = bytes->size();
  bytes->resize(at + sizeof(value));
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

// A literal with its sign, before the element type is known.
struct Literal {
  bool negative = false;
  TokenKind kind = TokenKind::kEnd;  // kInt, kFloat or kName (inf, nan, true, false)
  std::string_view text;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text), graph_("_") {}

  absl::StatusOr<Graph> Run() {
    RETURN_IF_ERROR(Header());
    while (Is("input") || Is("weight") || Is("constant")) RETURN_IF_ERROR(Declaration());
    while (Is("%")) RETURN_IF_ERROR(NodeLine());
    while (Is("output")) RETURN_IF_ERROR(OutputLine());
    RETURN_IF_ERROR(Expect("}"));
    if (Now().kind != TokenKind::kEnd) return Wrong("the end of the text");
    return std::move(graph_);
  }

 private:
  // ---- Tokens ----
  const Token& Now() const { return lexer_.token(); }

  bool Is(std::string_view text) const {
    return (Now().kind == TokenKind::kPunct || Now().kind == TokenKind::kName) &&
           Now().text == text;
  }

  bool Accept(std::string_view text) {
    if (!Is(text)) return false;
    lexer_.Advance();
    return true;
  }

  absl::Status Error(std::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", Now().line, ", column ", Now().column, ": ", Sv(why)));
  }

  absl::Status Wrong(std::string_view wanted) const {
    if (Now().kind == TokenKind::kError) return Error(Now().text);
    const std::string found = Now().kind == TokenKind::kEnd ? "the end of the text"
                              : Now().kind == TokenKind::kString
                                  ? std::string("a string")
                                  : absl::StrCat("'", Sv(Now().text.substr(0, 40)), "'");
    return Error(absl::StrCat("expected ", Sv(wanted), ", found ", found));
  }

  absl::Status Expect(std::string_view text) {
    if (!Accept(text)) return Wrong(absl::StrCat("'", Sv(text), "'"));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Name(std::string_view what) {
    if (Now().kind != TokenKind::kName) return Wrong(what);
    if (!IsIdentifier(Now().text)) return Error("a name is too long; the limit is 256 characters");
    std::string name(Now().text);
    lexer_.Advance();
    return name;
  }

  absl::StatusOr<std::string> String() {
    if (Now().kind != TokenKind::kString) return Wrong("a string");
    std::string value = Now().string;
    lexer_.Advance();
    return value;
  }

  // `item` is called once per element of a comma-separated list.
  template <typename Item>
  absl::Status List(std::string_view close, size_t max, Item item) {
    if (Accept(close)) return absl::OkStatus();
    for (size_t count = 0; count < max; ++count) {
      RETURN_IF_ERROR(item());
      if (Accept(close)) return absl::OkStatus();
      RETURN_IF_ERROR(Expect(","));
    }
    return Error(absl::StrCat("a list has more than ", max, " entries"));
  }

  // ---- Numbers ----
  absl::StatusOr<Literal> ReadLiteral() {
    Literal literal;
    literal.negative = Accept("-");
    literal.kind = Now().kind;
    literal.text = Now().text;
    const bool word = Is("inf") || Is("nan") || Is("true") || Is("false");
    if (literal.kind != TokenKind::kInt && literal.kind != TokenKind::kFloat && !word) {
      return Wrong("a number");
    }
    lexer_.Advance();
    return literal;
  }

  absl::StatusOr<int64_t> ToInt(const Literal& literal) const {
    uint64_t magnitude = 0;
    const char* end = literal.text.data() + literal.text.size();
    const auto result = std::from_chars(literal.text.data(), end, magnitude);
    const uint64_t limit = uint64_t{1} << 63;
    if (literal.kind != TokenKind::kInt || result.ec != std::errc() || result.ptr != end ||
        magnitude > limit || (magnitude == limit && !literal.negative)) {
      return Error("expected an integer of 64 bits");
    }
    return static_cast<int64_t>(literal.negative ? uint64_t{0} - magnitude : magnitude);
  }

  absl::StatusOr<int64_t> Int() {
    ASSIGN_OR_RETURN(const Literal literal, ReadLiteral());
    return ToInt(literal);
  }

  template <typename T>
  absl::StatusOr<T> ToReal(const Literal& literal) const {
    T value = 0;
    if (literal.text == "inf") {
      value = std::numeric_limits<T>::infinity();
    } else if (literal.text == "nan") {
      value = std::numeric_limits<T>::quiet_NaN();
    } else if (literal.kind == TokenKind::kName) {
      return Error("expected a number");
    } else {
      const char* end = literal.text.data() + literal.text.size();
      const auto result = std::from_chars(literal.text.data(), end, value);
      if (result.ec != std::errc() || result.ptr != end) {
        return Error("a number does not fit its type");
      }
    }
    return literal.negative ? -value : value;
  }

  // ---- Dims and types ----
  absl::StatusOr<DimTerm> Term(bool negative) {
    DimTerm term{{}, negative ? -1 : 1};
    do {
      if (Now().kind == TokenKind::kInt) {
        ASSIGN_OR_RETURN(const int64_t factor, Int());
        if (__builtin_mul_overflow(term.coef, factor, &term.coef)) {
          return Error("a shape expression overflows 64 bits");
        }
        continue;
      }
      ASSIGN_OR_RETURN(const std::string name, Name("a symbol or an integer"));
      const auto at = symbols_.find(name);
      if (at == symbols_.end()) return Error(absl::StrCat("unknown symbol '", name, "'"));
      if (term.symbols.size() == kDimDegreeMax) return Error("too many factors in a shape");
      term.symbols.push_back(at->second);
    } while (Accept("*"));
    return term;
  }

  absl::StatusOr<Dim> ReadDim() {
    std::vector<DimTerm> terms;
    bool negative = Accept("-");
    while (true) {
      if (terms.size() == kDimTermsMax) return Error("too many terms in a shape expression");
      ASSIGN_OR_RETURN(DimTerm term, Term(negative));
      terms.push_back(std::move(term));
      if (Accept("+")) {
        negative = false;
      } else if (Accept("-")) {
        negative = true;
      } else {
        break;
      }
    }
    absl::StatusOr<Dim> dim = Dim::FromTerms(std::move(terms));
    if (!dim.ok()) return Error(Sv(dim.status().message()));
    return dim;
  }

  absl::StatusOr<std::vector<Dim>> ReadDims(size_t max) {
    RETURN_IF_ERROR(Expect("["));
    std::vector<Dim> dims;
    RETURN_IF_ERROR(List("]", max, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(Dim dim, ReadDim());
      dims.push_back(std::move(dim));
      return absl::OkStatus();
    }));
    return dims;
  }

  absl::StatusOr<DType> ReadDType() {
    const std::optional<DType> dtype =
        Now().kind == TokenKind::kName ? ParseDType(Now().text) : std::nullopt;
    if (!dtype) return Wrong("an element type such as f32");
    lexer_.Advance();
    return *dtype;
  }

  absl::StatusOr<Type> ReadType() {
    if (Accept("step")) return Type(StepType{});
    if (Accept("kv")) return ReadKv();
    TensorType type;
    ASSIGN_OR_RETURN(type.dtype, ReadDType());
    ASSIGN_OR_RETURN(type.dims, ReadDims(kRankMax));
    return Type(std::move(type));
  }

  absl::StatusOr<Type> ReadKv() {
    KvType kv;
    RETURN_IF_ERROR(Expect("<"));
    RETURN_IF_ERROR(Expect("heads"));
    ASSIGN_OR_RETURN(kv.heads, Int());
    RETURN_IF_ERROR(Expect(","));
    RETURN_IF_ERROR(Expect("dim"));
    ASSIGN_OR_RETURN(kv.dim, Int());
    RETURN_IF_ERROR(Expect(","));
    ASSIGN_OR_RETURN(kv.dtype, ReadDType());
    if (Accept(",")) {
      RETURN_IF_ERROR(Expect("layout"));
      ASSIGN_OR_RETURN(kv.layout, String());
    }
    RETURN_IF_ERROR(Expect(">"));
    return Type(std::move(kv));
  }

  // ---- Header and declarations ----
  absl::Status Header() {
    RETURN_IF_ERROR(Expect("graph"));
    RETURN_IF_ERROR(Expect("@"));
    ASSIGN_OR_RETURN(std::string name, Name("the graph's name"));
    graph_.set_name(std::move(name));
    RETURN_IF_ERROR(Expect("("));
    RETURN_IF_ERROR(List(")", kListMax, [&] { return SymbolItem(); }));
    return Expect("{");
  }

  absl::Status SymbolItem() {
    Symbol symbol;
    ASSIGN_OR_RETURN(symbol.name, Name("a symbol's name"));
    RETURN_IF_ERROR(Expect("{"));
    ASSIGN_OR_RETURN(symbol.min, Int());
    RETURN_IF_ERROR(Expect(".."));
    ASSIGN_OR_RETURN(symbol.max, Int());
    if (!Accept("}")) {
      RETURN_IF_ERROR(Expect(","));
      RETURN_IF_ERROR(Expect("prefer"));
      RETURN_IF_ERROR(List("}", kListMax, [&]() -> absl::Status {
        ASSIGN_OR_RETURN(int64_t value, Int());
        symbol.prefer.push_back(value);
        return absl::OkStatus();
      }));
    }
    const std::string name = symbol.name;
    if (!symbols_.emplace(name, graph_.AddSymbol(std::move(symbol))).second) {
      return Error(absl::StrCat("symbol '", name, "' is declared twice"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> DeclaredName() {
    RETURN_IF_ERROR(Expect("%"));
    if (Now().kind == TokenKind::kString) return String();
    return Name("a name");
  }

  absl::Status Declaration() {
    const std::string section(Now().text);
    lexer_.Advance();
    ASSIGN_OR_RETURN(std::string name, DeclaredName());
    RETURN_IF_ERROR(Expect(":"));
    ASSIGN_OR_RETURN(Type type, ReadType());
    ValueId id;
    if (section == "input") {
      id = graph_.AddInput(name, std::move(type));
    } else {
      const TensorType* tensor = AsTensor(type);
      if (tensor == nullptr) return Error("weights and constants are tensors");
      if (section == "weight") {
        id = graph_.AddWeight(name, *tensor);
      } else {
        RETURN_IF_ERROR(Expect("="));
        ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, Payload(tensor->dtype));
        id = graph_.AddConstant(name, *tensor, std::move(bytes));
      }
    }
    if (!named_.emplace(name, id).second) {
      return Error(absl::StrCat("'", name, "' is declared twice"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<uint8_t>> Payload(DType dtype) {
    std::vector<uint8_t> bytes;
    if (Accept("x")) {
      ASSIGN_OR_RETURN(const std::string hex, String());
      if (hex.size() % 2 != 0 || hex.size() > 2 * kConstantBytesMax ||
          hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
        return Error("raw bytes are pairs of lower-case hex digits, at most 4096 of them");
      }
      const std::string raw = absl::HexStringToBytes(hex);
      return std::vector<uint8_t>(raw.begin(), raw.end());
    }
    RETURN_IF_ERROR(Expect("["));
    RETURN_IF_ERROR(List("]", kConstantBytesMax, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const Literal literal, ReadLiteral());
      return Element(dtype, literal, &bytes);
    }));
    return bytes;
  }

  template <typename T>
  absl::Status IntElement(const Literal& literal, std::vector<uint8_t>* bytes) {
    ASSIGN_OR_RETURN(const int64_t value, ToInt(literal));
    if (value < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
        value > static_cast<int64_t>(std::numeric_limits<T>::max())) {
      return Error("a number does not fit its element type");
    }
    Store(static_cast<T>(value), bytes);
    return absl::OkStatus();
  }

  absl::Status U64Element(const Literal& literal, std::vector<uint8_t>* bytes) {
    uint64_t value = 0;
    const char* end = literal.text.data() + literal.text.size();
    const auto result = std::from_chars(literal.text.data(), end, value);
    if (literal.kind != TokenKind::kInt || literal.negative || result.ec != std::errc()) {
      return Error("expected an unsigned integer of 64 bits");
    }
    Store(value, bytes);
    return absl::OkStatus();
  }

  absl::Status Element(DType dtype, const Literal& literal, std::vector<uint8_t>* bytes) {
    switch (dtype) {
      case DType::kBool:
        if (literal.negative || (literal.text != "true" && literal.text != "false")) {
          return Error("a bool is true or false");
        }
        bytes->push_back(literal.text == "true");
        return absl::OkStatus();
      case DType::kI8:
        return IntElement<int8_t>(literal, bytes);
      case DType::kI16:
        return IntElement<int16_t>(literal, bytes);
      case DType::kI32:
        return IntElement<int32_t>(literal, bytes);
      case DType::kI64:
        return IntElement<int64_t>(literal, bytes);
      case DType::kU8:
        return IntElement<uint8_t>(literal, bytes);
      case DType::kU16:
        return IntElement<uint16_t>(literal, bytes);
      case DType::kU32:
        return IntElement<uint32_t>(literal, bytes);
      case DType::kU64:
        return U64Element(literal, bytes);
      case DType::kF64: {
        ASSIGN_OR_RETURN(const double value, ToReal<double>(literal));
        Store(value, bytes);
        return absl::OkStatus();
      }
      case DType::kF16:
      case DType::kBf16:
      case DType::kF32: {
        ASSIGN_OR_RETURN(const float value, ToReal<float>(literal));
        if (dtype == DType::kF32) Store(value, bytes);
        if (dtype == DType::kF16) Store(F32ToF16(value), bytes);
        if (dtype == DType::kBf16) Store(F32ToBf16(value), bytes);
        return absl::OkStatus();
      }
      default:
        return Error("a block-typed constant is written as raw bytes, x\"...\"");
    }
  }

  // ---- Nodes ----
  absl::StatusOr<int64_t> Number() {
    if (Now().kind != TokenKind::kInt) return Wrong("a value's number");
    return Int();
  }

  absl::StatusOr<ValueId> Use() {
    RETURN_IF_ERROR(Expect("%"));
    if (Now().kind == TokenKind::kInt) {
      ASSIGN_OR_RETURN(const int64_t number, Number());
      const auto at = numbered_.find(number);
      if (at == numbered_.end()) return Error(absl::StrCat("%", number, " is not defined yet"));
      return at->second;
    }
    std::string name;
    if (Now().kind == TokenKind::kString) {
      ASSIGN_OR_RETURN(name, String());
    } else {
      ASSIGN_OR_RETURN(name, Name("a value"));
    }
    const auto at = named_.find(name);
    if (at == named_.end()) return Error(absl::StrCat("'%", name, "' is not declared"));
    return at->second;
  }

  struct Definition {
    int64_t number;
    std::string hint;
  };

  absl::StatusOr<Definition> ReadDefinition() {
    RETURN_IF_ERROR(Expect("%"));
    Definition definition;
    ASSIGN_OR_RETURN(definition.number, Number());
    if (numbered_.contains(definition.number)) {
      return Error(absl::StrCat("%", definition.number, " is defined twice"));
    }
    if (!lexer_.spaced() && Accept(".")) {
      if (Now().kind == TokenKind::kString) {
        ASSIGN_OR_RETURN(definition.hint, String());
      } else {
        ASSIGN_OR_RETURN(definition.hint, Name("a name hint"));
      }
    }
    return definition;
  }

  absl::Status NodeLine() {
    std::vector<Definition> definitions;
    RETURN_IF_ERROR(List("=", kNodeValuesMax, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(Definition definition, ReadDefinition());
      definitions.push_back(std::move(definition));
      return absl::OkStatus();
    }));
    if (Now().kind != TokenKind::kName) return Wrong("an operation");
    const std::optional<OpKind> op = FindOp(Now().text);
    if (!op) return Error(absl::StrCat("unknown operation '", Sv(Now().text.substr(0, 40)), "'"));
    lexer_.Advance();

    std::vector<ValueId> inputs;
    if (Is("%")) {
      do {
        if (inputs.size() == kNodeValuesMax) return Error("a node has too many inputs");
        ASSIGN_OR_RETURN(const ValueId input, Use());
        inputs.push_back(input);
      } while (Accept(","));
    }
    Attrs attrs;
    if (Accept("{")) RETURN_IF_ERROR(List("}", kListMax, [&] { return AttrItem(&attrs); }));
    RETURN_IF_ERROR(Expect(":"));
    std::vector<Type> types;
    do {
      if (types.size() == definitions.size()) return Error("more types than values");
      ASSIGN_OR_RETURN(Type type, ReadType());
      types.push_back(std::move(type));
    } while (Accept(","));
    if (types.size() != definitions.size()) return Error("fewer types than values");
    ASSIGN_OR_RETURN(const LocId loc, ReadLoc());

    const NodeId id =
        graph_.AddNode(*op, std::move(inputs), std::move(attrs), std::move(types), loc);
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      graph_.value(outputs[i]).name = std::move(definitions[i].hint);
      if (!numbered_.emplace(definitions[i].number, outputs[i]).second) {
        return Error(absl::StrCat("%", definitions[i].number, " is defined twice"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<LocId> ReadLoc() {
    if (!Accept("loc")) return LocId{};
    RETURN_IF_ERROR(Expect("("));
    std::vector<std::string> sources;
    RETURN_IF_ERROR(List(")", kLocSourcesMax, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(std::string source, String());
      sources.push_back(std::move(source));
      return absl::OkStatus();
    }));
    return graph_.Loc(std::move(sources));
  }

  absl::Status AttrItem(Attrs* attrs) {
    ASSIGN_OR_RETURN(const std::string name, Name("an attribute's name"));
    if (attrs->Has(name)) return Error(absl::StrCat("attribute '", name, "' is given twice"));
    RETURN_IF_ERROR(Expect("="));
    ASSIGN_OR_RETURN(AttrValue value, ReadAttr());
    attrs->Set(name, std::move(value));
    return absl::OkStatus();
  }

  absl::StatusOr<AttrValue> ReadAttr() {
    if (Accept("true")) return AttrValue(true);
    if (Accept("false")) return AttrValue(false);
    if (Now().kind == TokenKind::kString) {
      ASSIGN_OR_RETURN(std::string value, String());
      return AttrValue(std::move(value));
    }
    if (Accept("[")) return ReadInts();
    if (Accept("floats")) return ReadFloats();
    if (Accept("dims")) {
      ASSIGN_OR_RETURN(std::vector<Dim> dims, ReadDims(kRankMax));
      return AttrValue(std::move(dims));
    }
    if (Now().kind == TokenKind::kName && !Is("inf") && !Is("nan")) {
      ASSIGN_OR_RETURN(const DType dtype, ReadDType());
      return AttrValue(dtype);
    }
    ASSIGN_OR_RETURN(const Literal literal, ReadLiteral());
    if (literal.kind == TokenKind::kInt) {
      ASSIGN_OR_RETURN(const int64_t value, ToInt(literal));
      return AttrValue(value);
    }
    ASSIGN_OR_RETURN(const double value, ToReal<double>(literal));
    return AttrValue(value);
  }

  absl::StatusOr<AttrValue> ReadInts() {
    std::vector<int64_t> values;
    RETURN_IF_ERROR(List("]", kListMax, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const int64_t value, Int());
      values.push_back(value);
      return absl::OkStatus();
    }));
    return AttrValue(std::move(values));
  }

  absl::StatusOr<AttrValue> ReadFloats() {
    RETURN_IF_ERROR(Expect("["));
    std::vector<double> values;
    RETURN_IF_ERROR(List("]", kListMax, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const Literal literal, ReadLiteral());
      ASSIGN_OR_RETURN(const double value, ToReal<double>(literal));
      values.push_back(value);
      return absl::OkStatus();
    }));
    return AttrValue(std::move(values));
  }

  absl::Status OutputLine() {
    RETURN_IF_ERROR(Expect("output"));
    ASSIGN_OR_RETURN(std::string name, String());
    ASSIGN_OR_RETURN(const ValueId value, Use());
    graph_.AddOutput(std::move(name), value);
    return absl::OkStatus();
  }

  Lexer lexer_;
  Graph graph_;
  std::map<std::string, SymbolId> symbols_;
  std::unordered_map<std::string, ValueId> named_;  // looked up, never iterated
  std::unordered_map<int64_t, ValueId> numbered_;
};

}  // namespace

absl::StatusOr<Graph> ParseUnverified(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("IR text of ", text.size(), " bytes is over the limit of ", kTextBytesMax));
  }
  return Parser(text).Run();
}

absl::StatusOr<Graph> Parse(std::string_view text) {
  ASSIGN_OR_RETURN(Graph graph, ParseUnverified(text));
  RETURN_IF_ERROR(Verify(graph));
  return graph;
}

}  // namespace cuvil::ir
