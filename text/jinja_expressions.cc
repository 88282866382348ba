#include <algorithm>
#include <ctime>

#include "text/jinja_arithmetic.h"
#include "text/jinja_eval.h"

namespace cuvil::text::jinja {
namespace {

// The longest date that a template may print.
constexpr size_t kDateBytes = 256;

bool IsMethodHolder(const Value& value) {
  return value.string() != nullptr || value.dict() != nullptr;
}

}  // namespace

Value Interpreter::Evaluate(const Expr& expr) {
  const Level level(this);
  if (!rt_.Steps()) return Value();
  rt_.set_line(expr.line);
  Value value = EvaluateInner(expr);
  return rt_.failed() ? Value() : value;
}

Value Interpreter::EvaluateInner(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.literal;
    case ExprKind::kName:
      return Lookup(expr.text);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return Sequence(expr);
    case ExprKind::kDict:
      return Mapping(expr);
    case ExprKind::kUnary:
      return Unary(expr);
    case ExprKind::kBinary:
      return Binary(expr);
    case ExprKind::kCompare:
      return Compare(expr);
    case ExprKind::kConditional:
      if (Evaluate(*expr.args[1]).Truthy()) return Evaluate(*expr.args[0]);
      return expr.args[2] == nullptr ? Value() : Evaluate(*expr.args[2]);
    case ExprKind::kAttribute:
      return Attribute(expr);
    case ExprKind::kIndex: {
      const Value operand = Evaluate(*expr.args[0]);
      return GetItem(rt_, operand, Evaluate(*expr.args[1]));
    }
    case ExprKind::kSlice:
      return SliceOf(expr);
    case ExprKind::kCall:
      return Call(expr);
    case ExprKind::kFilter:
      return Filter(expr);
    case ExprKind::kTest:
      return Test(expr);
  }
  return Value();
}

bool Interpreter::Storable(const Value& value) {
  if (value.name_space() == nullptr) return !rt_.failed();
  rt_.Fail("a namespace cannot be part of another value");
  return false;
}

Value Interpreter::Sequence(const Expr& expr) {
  List list;
  list.tuple = expr.kind == ExprKind::kTuple;
  for (const ExprPtr& arg : expr.args) {
    Value item = Evaluate(*arg);
    if (!Storable(item)) return Value();
    list.items.push_back(std::move(item));
  }
  return rt_.Made(Value::Of(std::move(list)));
}

Value Interpreter::Mapping(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    const Value key = Evaluate(*expr.args[i]);
    Value value = Evaluate(*expr.args[i + 1]);
    if (!Storable(value)) return Value();
    if (key.string() == nullptr) {
      return rt_.Fail(absl::StrCat("a mapping's key must be a string, not ", key.kind()));
    }
    dict.Set(*key.string(), std::move(value));
  }
  return rt_.Made(Value::Of(std::move(dict)));
}

Value Interpreter::Unary(const Expr& expr) {
  const Value value = Evaluate(*expr.args[0]);
  if (rt_.failed()) return Value();
  if (expr.text == "not") return Value::Of(!value.Truthy());
  if (!value.is_number() && value.boolean() == nullptr) {
    return rt_.Fail(absl::StrCat("a sign does not go with ", value.kind()));
  }
  const Value zero = value.floating() != nullptr ? Value::Of(0.0) : Value::Of(int64_t{0});
  return Arithmetic(rt_, expr.text, zero, value);
}

Value Interpreter::Binary(const Expr& expr) {
  Value left = Evaluate(*expr.args[0]);
  if (rt_.failed()) return Value();
  if (expr.text == "and") return left.Truthy() ? Evaluate(*expr.args[1]) : left;
  if (expr.text == "or") return left.Truthy() ? left : Evaluate(*expr.args[1]);
  const Value right = Evaluate(*expr.args[1]);
  if (rt_.failed()) return Value();
  if ((left.is_undefined() || right.is_undefined()) && expr.text != "~") {
    return rt_.Fail(absl::StrCat("'", expr.text, "' is used with a value that is undefined"));
  }
  return Arithmetic(rt_, expr.text, left, right);
}

Value Interpreter::Compare(const Expr& expr) {
  Value left = Evaluate(*expr.args[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = Evaluate(*expr.args[i + 1]);
    if (rt_.failed()) return Value();
    if (!CompareOne(expr.ops[i], left, right)) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

bool Interpreter::CompareOne(const std::string& op, const Value& left, const Value& right) {
  if (!rt_.Bytes(left.weight() + right.weight())) return false;
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  if (op == "in") return Contains(rt_, left, right);
  if (op == "not in") return !Contains(rt_, left, right);
  if (op == "<") return Less(rt_, left, right);
  if (op == ">") return Less(rt_, right, left);
  double a = 0, b = 0;
  // Written without negation, so that it is false for NaN.
  if (left.AsDouble(&a) && right.AsDouble(&b)) return op == "<=" ? a <= b : a >= b;
  return op == "<=" ? !Less(rt_, right, left) : !Less(rt_, left, right);
}

Value Interpreter::Attribute(const Expr& expr) {
  const Value operand = Evaluate(*expr.args[0]);
  if (rt_.failed()) return Value();
  // Names that lead into an interpreter's insides in other implementations are refused aloud.
  if (expr.text.starts_with("_")) {
    return rt_.Fail(absl::StrCat("the attribute '", expr.text, "' is not accessible"));
  }
  return GetItem(rt_, operand, Value::Of(expr.text, true));
}

Value Interpreter::SliceOf(const Expr& expr) {
  const Value operand = Evaluate(*expr.args[0]);
  const auto part = [this, &expr](size_t i) {
    return expr.args[i] == nullptr ? Value::OfNone() : Evaluate(*expr.args[i]);
  };
  const Value start = part(1), stop = part(2), step = part(3);
  return rt_.failed() ? Value() : Slice(rt_, operand, start, stop, step);
}

bool Interpreter::CollectArguments(const Expr& expr, Arguments* arguments) {
  for (size_t i = 1; i < expr.args.size(); ++i) {
    arguments->positional.push_back(Evaluate(*expr.args[i]));
    if (!Storable(arguments->positional.back())) return false;
  }
  for (const auto& [name, value] : expr.named) {
    arguments->named.emplace_back(name, Evaluate(*value));
    if (!Storable(arguments->named.back().second)) return false;
  }
  return !rt_.failed();
}

Value Interpreter::Call(const Expr& expr) {
  const Expr& callee = *expr.args[0];
  Arguments arguments;
  if (callee.kind == ExprKind::kAttribute) {
    const Value holder = Evaluate(*callee.args[0]);
    if (rt_.failed() || !CollectArguments(expr, &arguments)) return Value();
    if (holder.is_undefined()) return rt_.Fail("a method is called on a value that is undefined");
    if (IsMethodHolder(holder)) return CallMethod(rt_, holder, callee.text, arguments);
    return rt_.Fail(absl::StrCat(holder.kind(), " has no method '", callee.text, "' here"));
  }
  const Value function = Evaluate(callee);
  if (rt_.failed() || !CollectArguments(expr, &arguments)) return Value();
  if (function.builtin() != nullptr) {
    return CallBuiltin(function.builtin()->name, std::move(arguments));
  }
  if (function.macro() != nullptr) return CallMacro(*function.macro()->stmt, arguments);
  const std::string what = callee.kind == ExprKind::kName ? "'" + callee.text + "'" : "a value";
  return rt_.Fail(absl::StrCat(what, " is ", function.kind(), " and cannot be called"));
}

Value Interpreter::Filter(const Expr& expr) {
  const Value operand = Evaluate(*expr.args[0]);
  Arguments arguments;
  if (rt_.failed() || !CollectArguments(expr, &arguments)) return Value();
  return ApplyFilter(rt_, expr.text, operand, arguments);
}

Value Interpreter::Test(const Expr& expr) {
  const Value operand = Evaluate(*expr.args[0]);
  Arguments arguments;
  if (rt_.failed() || !CollectArguments(expr, &arguments)) return Value();
  return Value::Of(ApplyTest(rt_, expr.text, operand, arguments) != expr.negated);
}

Value Interpreter::CallBuiltin(const std::string& name, Arguments arguments) {
  if (name == "range") return Range(arguments);
  if (name == "strftime_now") return StrftimeNow(arguments);
  if (name == "raise_exception") {
    const Value* why = arguments.Find(0, "message");
    return rt_.Fail("the template refuses: " +
                    (why == nullptr ? std::string("no reason given") : Print(*why).bytes()));
  }
  // namespace and dict
  Dict dict;
  if (!arguments.positional.empty()) {
    const Dict* given = arguments.positional[0].dict();
    if (given == nullptr) return rt_.Fail(absl::StrCat(name, " takes a mapping or named values"));
    if (!rt_.Steps(static_cast<int64_t>(given->items.size()))) return Value();
    dict = *given;
  }
  for (auto& [key, value] : arguments.named) dict.Set(MarkedString(key, true), std::move(value));
  return name == "dict" ? rt_.Made(Value::Of(std::move(dict)))
                        : Value::OfNamespace(std::move(dict));
}

Value Interpreter::Range(const Arguments& arguments) {
  int64_t start = 0, stop = 0, step = 1;
  const auto& given = arguments.positional;
  bool ok = given.size() >= 1 && given.size() <= 3;
  if (ok && given.size() == 1) ok = given[0].AsInteger(&stop);
  if (ok && given.size() > 1) ok = given[0].AsInteger(&start) && given[1].AsInteger(&stop);
  if (ok && given.size() == 3) ok = given[2].AsInteger(&step) && step != 0;
  if (!ok) return rt_.Fail("range takes one to three integers, the third other than 0");
  List out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (!rt_.Steps()) return Value();
    out.items.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return rt_.Made(Value::Of(std::move(out)));
}

Value Interpreter::StrftimeNow(const Arguments& arguments) {
  const Value* format = arguments.Find(0, "format");
  if (format == nullptr || format->string() == nullptr) {
    return rt_.Fail("strftime_now takes a format string");
  }
  const std::string& text = format->string()->bytes();
  const auto seconds = static_cast<time_t>(now_);
  struct tm parts = {};
  // UTC, so that a prompt does not depend on where the server runs.
  if (gmtime_r(&seconds, &parts) == nullptr) return rt_.Fail("the clock is out of range");
  char buffer[kDateBytes];
  const size_t size = text.empty() ? 0 : strftime(buffer, sizeof(buffer), text.c_str(), &parts);
  if (size == 0 && !text.empty())
    return rt_.Fail("strftime_now's format gives no or too much text");
  return rt_.Made(MarkedString(std::string_view(buffer, size), true));
}

Value Interpreter::CallMacro(const Stmt& macro, const Arguments& arguments) {
  if (arguments.positional.size() > macro.names.size()) {
    return rt_.Fail(absl::StrCat("the macro '", macro.text, "' takes ", macro.names.size(),
                                 " arguments, not ", arguments.positional.size()));
  }
  const Level level(this);
  const size_t outer = visible_from_;
  visible_from_ = frames_.size();
  frames_.emplace_back();
  for (size_t i = 0; i < macro.names.size() && !rt_.failed(); ++i) {
    const Value* given = arguments.Find(i, macro.names[i]);
    const ExprPtr& fallback = macro.defaults[i];
    Value value = given != nullptr ? *given : fallback != nullptr ? Evaluate(*fallback) : Value();
    Assign(macro.names[i], std::move(value));
  }
  MarkedString out;
  Execute(macro.body, &out);
  frames_.pop_back();
  visible_from_ = outer;
  return rt_.failed() ? Value() : rt_.Made(std::move(out));
}

}  // namespace cuvil::text::jinja
