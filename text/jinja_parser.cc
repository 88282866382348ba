#include "text/jinja_parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "text/jinja_lexer.h"

namespace cuvil::text::jinja {
namespace {

// Recursive descent. The first error sticks: after it every function returns quickly, and what they
// return is not used.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Block> Run() {
    Block block = ParseBlock({});
    if (!status_.ok()) return status_;
    return block;
  }

 private:
  // -- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool failed() const { return !status_.ok(); }
  void Step() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  void Fail(const std::string& what) {
    if (!failed()) status_ = TemplateError(now().line, what);
  }
  bool IsOp(std::string_view op) const {
    return now().kind == TokenKind::kOperator && now().text == op;
  }
  bool IsName(std::string_view name) const {
    return now().kind == TokenKind::kName && now().text == name;
  }
  bool TakeOp(std::string_view op) {
    if (!IsOp(op)) return false;
    Step();
    return true;
  }
  bool TakeName(std::string_view name) {
    if (!IsName(name)) return false;
    Step();
    return true;
  }
  void ExpectOp(std::string_view op) {
    if (!TakeOp(op)) Fail("expected '" + std::string(op) + "'");
  }
  void ExpectTagEnd() {
    if (now().kind == TokenKind::kTagEnd) {
      Step();
    } else {
      Fail("expected the end of the tag");
    }
  }
  std::string ExpectName() {
    if (now().kind != TokenKind::kName) {
      Fail("expected a name");
      return "";
    }
    std::string name = now().text;
    Step();
    return name;
  }

  // -- nodes
  ExprPtr New(ExprKind kind, std::string text = "") {
    auto made = std::make_unique<Expr>();
    made->kind = kind;
    made->line = now().line;
    made->text = std::move(text);
    return made;
  }
  // Adds a child and holds the depth down.
  void Add(Expr* parent, ExprPtr child) {
    if (child != nullptr) parent->depth = std::max(parent->depth, child->depth + 1);
    if (parent->depth > kExprDepthMax) Fail("an expression is nested too deep");
    parent->args.push_back(std::move(child));
  }
  ExprPtr Joined(ExprKind kind, std::string text, ExprPtr left, ExprPtr right) {
    ExprPtr made = New(kind, std::move(text));
    Add(made.get(), std::move(left));
    Add(made.get(), std::move(right));
    return made;
  }
  ExprPtr LiteralOf(Value value) {
    ExprPtr made = New(ExprKind::kLiteral);
    made->literal = std::move(value);
    return made;
  }

  // -- expressions, loosest first
  ExprPtr ParseExpr() {
    if (++nesting_ > kExprDepthMax) Fail("an expression is nested too deep");
    ExprPtr value = failed() ? New(ExprKind::kLiteral) : ParseConditional();
    --nesting_;
    return value;
  }

  ExprPtr ParseConditional() {
    ExprPtr value = ParseOr();
    while (!failed() && TakeName("if")) {
      ExprPtr made = New(ExprKind::kConditional);
      Add(made.get(), std::move(value));
      Add(made.get(), ParseOr());
      Add(made.get(), TakeName("else") ? ParseExpr() : nullptr);
      value = std::move(made);
    }
    return value;
  }

  ExprPtr ParseOr() {
    ExprPtr left = ParseAnd();
    while (!failed() && TakeName("or")) {
      left = Joined(ExprKind::kBinary, "or", std::move(left), ParseAnd());
    }
    return left;
  }

  ExprPtr ParseAnd() {
    ExprPtr left = ParseNot();
    while (!failed() && TakeName("and")) {
      left = Joined(ExprKind::kBinary, "and", std::move(left), ParseNot());
    }
    return left;
  }

  ExprPtr ParseNot() {
    int count = 0;
    while (TakeName("not")) ++count;
    ExprPtr value = ParseCompare();
    // An even number of them still makes a boolean.
    for (; count > 0 && !failed(); --count) {
      ExprPtr made = New(ExprKind::kUnary, "not");
      Add(made.get(), std::move(value));
      value = std::move(made);
    }
    return value;
  }

  std::string TakeCompareOp() {
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (TakeOp(op)) return std::string(op);
    }
    if (TakeName("in")) return "in";
    if (IsName("not") && after().kind == TokenKind::kName && after().text == "in") {
      Step();
      Step();
      return "not in";
    }
    return "";
  }

  ExprPtr ParseCompare() {
    ExprPtr first = ParseSum();
    std::string op = TakeCompareOp();
    if (op.empty()) return first;
    ExprPtr made = New(ExprKind::kCompare);
    Add(made.get(), std::move(first));
    for (; !op.empty() && !failed(); op = TakeCompareOp()) {
      made->ops.push_back(std::move(op));
      Add(made.get(), ParseSum());
    }
    return made;
  }

  using Level = ExprPtr (Parser::*)();
  ExprPtr ParseLeft(std::initializer_list<std::string_view> ops, Level operand) {
    ExprPtr left = (this->*operand)();
    while (!failed()) {
      const auto op = std::find_if(ops.begin(), ops.end(),
                                   [this](std::string_view candidate) { return IsOp(candidate); });
      if (op == ops.end()) break;
      Step();
      left = Joined(ExprKind::kBinary, std::string(*op), std::move(left), (this->*operand)());
    }
    return left;
  }
  ExprPtr ParseSum() { return ParseLeft({"+", "-"}, &Parser::ParseConcat); }
  ExprPtr ParseConcat() { return ParseLeft({"~"}, &Parser::ParseProduct); }
  ExprPtr ParseProduct() { return ParseLeft({"*", "//", "/", "%"}, &Parser::ParsePower); }
  ExprPtr ParsePower() { return ParseLeft({"**"}, &Parser::ParseFiltered); }

  ExprPtr ParseFiltered() { return ParseFilters(ParseUnary()); }

  // Signs bind tighter than filters, as in Jinja.
  ExprPtr ParseUnary() {
    std::string signs;
    while (IsOp("-") || IsOp("+")) {
      signs += now().text;
      Step();
    }
    ExprPtr value = ParsePostfix(ParsePrimary());
    for (auto sign = signs.rbegin(); sign != signs.rend() && !failed(); ++sign) {
      ExprPtr made = New(ExprKind::kUnary, std::string(1, *sign));
      Add(made.get(), std::move(value));
      value = std::move(made);
    }
    return value;
  }

  ExprPtr ParsePrimary() {
    const Token token = now();
    switch (token.kind) {
      case TokenKind::kName:
        Step();
        return NameOrConstant(token.text);
      case TokenKind::kString: {
        std::string text;
        for (; now().kind == TokenKind::kString; Step()) text += now().text;
        return LiteralOf(Value::Of(text, true));
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        Step();
        return Number(token);
      case TokenKind::kOperator:
        if (TakeOp("(")) return ParseParenthesis();
        if (TakeOp("[")) return ParseList();
        if (TakeOp("{")) return ParseDict();
        break;
      default:
        break;
    }
    Fail("expected an expression");
    return New(ExprKind::kLiteral);
  }

  ExprPtr NameOrConstant(const std::string& name) {
    if (name == "true" || name == "True") return LiteralOf(Value::Of(true));
    if (name == "false" || name == "False") return LiteralOf(Value::Of(false));
    if (name == "none" || name == "None") return LiteralOf(Value::OfNone());
    return New(ExprKind::kName, name);
  }

  ExprPtr Number(const Token& token) {
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    int64_t whole = 0;
    double real = 0;
    const auto error = token.kind == TokenKind::kInteger ? std::from_chars(begin, end, whole).ec
                                                         : std::from_chars(begin, end, real).ec;
    if (error != std::errc()) Fail("a number is out of range");
    return LiteralOf(token.kind == TokenKind::kInteger ? Value::Of(whole) : Value::Of(real));
  }

  ExprPtr ParseParenthesis() {
    if (TakeOp(")")) return New(ExprKind::kTuple);
    ExprPtr value = ParseTuple();
    ExpectOp(")");
    return value;
  }

  // One expression, or a tuple where commas follow.
  ExprPtr ParseTuple() {
    ExprPtr first = ParseExpr();
    if (!IsOp(",")) return first;
    ExprPtr tuple = New(ExprKind::kTuple);
    Add(tuple.get(), std::move(first));
    while (!failed() && TakeOp(",")) {
      const bool ends =
          IsOp(")") || now().kind == TokenKind::kTagEnd || now().kind == TokenKind::kOutputEnd;
      if (ends) break;
      Add(tuple.get(), ParseExpr());
    }
    return tuple;
  }

  ExprPtr ParseList() {
    ExprPtr list = New(ExprKind::kList);
    while (!failed() && !TakeOp("]")) {
      Add(list.get(), ParseExpr());
      if (!IsOp("]")) ExpectOp(",");
    }
    return list;
  }

  ExprPtr ParseDict() {
    ExprPtr dict = New(ExprKind::kDict);
    while (!failed() && !TakeOp("}")) {
      Add(dict.get(), ParseExpr());
      ExpectOp(":");
      Add(dict.get(), ParseExpr());
      if (!IsOp("}")) ExpectOp(",");
    }
    return dict;
  }

  ExprPtr ParsePostfix(ExprPtr value) {
    while (!failed()) {
      if (TakeOp(".")) {
        ExprPtr made = New(ExprKind::kAttribute);
        Add(made.get(), std::move(value));
        made->text = ExpectName();
        value = std::move(made);
      } else if (TakeOp("[")) {
        value = ParseSubscript(std::move(value));
      } else if (TakeOp("(")) {
        ExprPtr made = New(ExprKind::kCall);
        Add(made.get(), std::move(value));
        ParseArguments(made.get());
        value = std::move(made);
      } else {
        break;
      }
    }
    return value;
  }

  ExprPtr ParseSubscript(ExprPtr operand) {
    ExprPtr start;
    if (!IsOp(":")) start = ParseExpr();
    if (TakeOp("]")) {
      return Joined(ExprKind::kIndex, "", std::move(operand), std::move(start));
    }
    ExprPtr made = New(ExprKind::kSlice);
    Add(made.get(), std::move(operand));
    Add(made.get(), std::move(start));
    ExpectOp(":");
    Add(made.get(), IsOp(":") || IsOp("]") ? nullptr : ParseExpr());
    Add(made.get(), TakeOp(":") && !IsOp("]") ? ParseExpr() : nullptr);
    ExpectOp("]");
    return made;
  }

  // Up to and with the closing parenthesis.
  void ParseArguments(Expr* call) {
    while (!failed() && !TakeOp(")")) {
      const bool named = now().kind == TokenKind::kName && after().kind == TokenKind::kOperator &&
                         after().text == "=";
      if (named) {
        std::string name = ExpectName();
        ExpectOp("=");
        ExprPtr value = ParseExpr();
        call->depth = std::max(call->depth, value->depth + 1);
        if (call->depth > kExprDepthMax) Fail("an expression is nested too deep");
        call->named.emplace_back(std::move(name), std::move(value));
      } else if (IsOp("*") || IsOp("**")) {
        Fail("arguments cannot be unpacked in a call");
      } else {
        Add(call, ParseExpr());
      }
      if (call->args.size() + call->named.size() > kArgumentsMax)
        Fail("a call has too many arguments");
      if (!IsOp(")")) ExpectOp(",");
    }
  }

  ExprPtr ParseFilters(ExprPtr value) {
    while (!failed()) {
      if (TakeOp("|")) {
        ExprPtr made = New(ExprKind::kFilter);
        Add(made.get(), std::move(value));
        made->text = ExpectName();
        if (TakeOp("(")) ParseArguments(made.get());
        value = std::move(made);
      } else if (TakeName("is")) {
        value = ParseTest(std::move(value));
      } else {
        break;
      }
    }
    return value;
  }

  ExprPtr ParseTest(ExprPtr operand) {
    ExprPtr made = New(ExprKind::kTest);
    made->negated = TakeName("not");
    Add(made.get(), std::move(operand));
    made->text = ExpectName();
    if (TakeOp("(")) {
      ParseArguments(made.get());
    } else if (StartsTestArgument()) {
      Add(made.get(), ParsePostfix(ParsePrimary()));
    }
    return made;
  }

  // `x is divisibleby 3` has an argument without parentheses.
  bool StartsTestArgument() const {
    switch (now().kind) {
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      case TokenKind::kName:
        return !(IsName("else") || IsName("or") || IsName("and") || IsName("if") || IsName("is") ||
                 IsName("in") || IsName("not"));
      default:
        return IsOp("[") || IsOp("{");
    }
  }

  // -- statements

  // Up to a tag whose name is one of `ends`, whose kTagBegin is consumed; up to the end of the
  // template when there are none.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    Block block;
    if (++blocks_ > kBlockDepthMax) Fail("blocks are nested too deep");
    while (!failed()) {
      if (now().kind == TokenKind::kEnd) {
        if (ends.size() != 0) Fail("a block is not closed");
        break;
      }
      if (now().kind == TokenKind::kTagBegin) {
        Step();
        if (std::any_of(ends.begin(), ends.end(), [this](auto end) { return IsName(end); })) break;
        if (auto made = ParseTag()) block.push_back(std::move(made));
      } else {
        block.push_back(ParseText());
      }
    }
    --blocks_;
    return block;
  }

  std::unique_ptr<Stmt> NewStmt(StmtKind kind) {
    auto made = std::make_unique<Stmt>();
    made->kind = kind;
    made->line = now().line;
    return made;
  }

  std::unique_ptr<Stmt> ParseText() {
    if (now().kind == TokenKind::kText) {
      auto made = NewStmt(StmtKind::kText);
      made->text = now().text;
      Step();
      return made;
    }
    auto made = NewStmt(StmtKind::kOutput);
    Step();
    made->expr = ParseTuple();
    if (now().kind == TokenKind::kOutputEnd) {
      Step();
    } else {
      Fail("expected '}}'");
    }
    return made;
  }

  std::unique_ptr<Stmt> ParseTag() {
    if (TakeName("if")) return ParseIf();
    if (TakeName("for")) return ParseFor();
    if (TakeName("set")) return ParseSet();
    if (TakeName("macro")) return ParseMacro();
    if (TakeName("generation")) return ParseGeneration();
    if (IsName("break") || IsName("continue")) {
      auto made = NewStmt(IsName("break") ? StmtKind::kBreak : StmtKind::kContinue);
      if (loops_ == 0) Fail("'" + now().text + "' stands outside a loop");
      Step();
      ExpectTagEnd();
      return made;
    }
    Fail("the tag '" + now().text + "' is not supported");
    return nullptr;
  }

  std::unique_ptr<Stmt> ParseIf() {
    auto made = NewStmt(StmtKind::kIf);
    while (!failed()) {
      ExprPtr condition = ParseTuple();
      ExpectTagEnd();
      Block body = ParseBlock({"elif", "else", "endif"});
      made->branches.emplace_back(std::move(condition), std::move(body));
      if (TakeName("elif")) continue;
      if (TakeName("else")) {
        ExpectTagEnd();
        made->otherwise = ParseBlock({"endif"});
      }
      if (!failed()) Step();  // endif
      ExpectTagEnd();
      break;
    }
    return made;
  }

  std::vector<std::string> ParseTargets() {
    std::vector<std::string> names;
    const bool wrapped = TakeOp("(");
    do {
      names.push_back(ExpectName());
    } while (!failed() && TakeOp(","));
    if (wrapped) ExpectOp(")");
    return names;
  }

  std::unique_ptr<Stmt> ParseFor() {
    auto made = NewStmt(StmtKind::kFor);
    made->names = ParseTargets();
    if (!TakeName("in")) Fail("expected 'in'");
    made->expr = ParseOr();
    if (TakeName("if")) made->condition = ParseExpr();
    if (IsName("recursive")) Fail("recursive loops are not supported");
    ExpectTagEnd();
    ++loops_;
    made->body = ParseBlock({"else", "endfor"});
    --loops_;
    if (TakeName("else")) {
      ExpectTagEnd();
      made->otherwise = ParseBlock({"endfor"});
    }
    if (!failed()) Step();  // endfor
    ExpectTagEnd();
    return made;
  }

  std::unique_ptr<Stmt> ParseSet() {
    auto made = NewStmt(StmtKind::kSet);
    made->names = ParseTargets();
    if (made->names.size() == 1 && TakeOp(".")) made->attribute = ExpectName();
    if (TakeOp("=")) {
      made->expr = ParseTuple();
      ExpectTagEnd();
      return made;
    }
    if (made->names.size() != 1) Fail("expected '='");
    ExpectTagEnd();
    made->body = ParseBlock({"endset"});
    if (!failed()) Step();
    ExpectTagEnd();
    return made;
  }

  std::unique_ptr<Stmt> ParseMacro() {
    auto made = NewStmt(StmtKind::kMacro);
    made->text = ExpectName();
    ExpectOp("(");
    while (!failed() && !TakeOp(")")) {
      made->names.push_back(ExpectName());
      made->defaults.push_back(TakeOp("=") ? ParseExpr() : nullptr);
      if (!IsOp(")")) ExpectOp(",");
    }
    ExpectTagEnd();
    const int loops = loops_;
    loops_ = 0;  // break inside a macro cannot leave the loop around it
    made->body = ParseBlock({"endmacro"});
    loops_ = loops;
    if (!failed()) Step();
    ExpectTagEnd();
    return made;
  }

  // Marks what an assistant says, for training; rendering only passes through.
  std::unique_ptr<Stmt> ParseGeneration() {
    auto made = NewStmt(StmtKind::kBlock);
    ExpectTagEnd();
    made->body = ParseBlock({"endgeneration"});
    if (!failed()) Step();
    ExpectTagEnd();
    return made;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int blocks_ = 0;
  int loops_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Block> ParseTemplate(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the chat template has ", source.size(),
                                                   " bytes; at most ", kSourceBytesMax,
                                                   " are supported"));
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace cuvil::text::jinja
