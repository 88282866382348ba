#include "text/jinja_arithmetic.h"

#include <cmath>

#include "base/checked.h"

namespace cuvil::text::jinja {
namespace {

Value TypeError(Runtime& rt, const std::string& op, const Value& left, const Value& right) {
  return rt.Fail(absl::StrCat("'", op, "' does not take ", left.kind(), " and ", right.kind()));
}

Value Joined(Runtime& rt, const Value& left, const Value& right) {
  if (!rt.Bytes(left.weight() + right.weight())) return Value();
  MarkedString out = Print(left);
  out.Append(Print(right));
  return rt.Made(std::move(out));
}

Value JoinedLists(Runtime& rt, const List& left, const List& right) {
  rt.Steps(static_cast<int64_t>(left.items.size() + right.items.size()));
  List out{.items = left.items, .tuple = left.tuple};
  out.items.insert(out.items.end(), right.items.begin(), right.items.end());
  return rt.Made(Value::Of(std::move(out)));
}

// A string or list, several times.
Value Repeated(Runtime& rt, const Value& value, int64_t count) {
  if (count < 0) count = 0;
  const MarkedString* text = value.string();
  const size_t size = text != nullptr ? text->size() : value.weight();
  if (size != 0 && static_cast<uint64_t>(count) > kOutputMax / size) {
    return rt.Fail(absl::StrCat("a repeated value is larger than ", kOutputMax, " bytes"));
  }
  if (!rt.Bytes(size * static_cast<size_t>(count))) return Value();
  if (text != nullptr) {
    MarkedString out;
    for (int64_t i = 0; i < count && size != 0; ++i) out.Append(*text);
    return rt.Made(std::move(out));
  }
  const List& list = *value.list();
  List out{.tuple = list.tuple};
  if (!rt.Steps(static_cast<int64_t>(list.items.size()) * count)) return Value();
  for (int64_t i = 0; i < count; ++i) {
    out.items.insert(out.items.end(), list.items.begin(), list.items.end());
  }
  return rt.Made(Value::Of(std::move(out)));
}

// Python's floor division and its remainder.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value Power(Runtime& rt, int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::Of(std::pow(static_cast<double>(base), exponent));
  int64_t result = 1;
  // 64 factors of 2 overflow already; 0, 1 and -1 need no more either, by parity.
  const int64_t factors = exponent > 64 ? 64 + exponent % 2 : exponent;
  for (int64_t i = 0; i < factors; ++i) {
    if (!CheckedMul(result, base, &result)) return rt.Fail("'**' gives a number out of range");
  }
  return Value::Of(result);
}

Value Integers(Runtime& rt, const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool ok = true;
  if (op == "**") return Power(rt, a, b);
  if (op == "+") {
    ok = CheckedAdd(a, b, &result);
  } else if (op == "-") {
    ok = !__builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    ok = CheckedMul(a, b, &result);
  } else {
    if (b == 0) return rt.Fail("a number is divided by 0");
    if (op == "/") return Value::Of(static_cast<double>(a) / static_cast<double>(b));
    ok = !(a == INT64_MIN && b == -1);
    if (ok) result = op == "//" ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
  }
  if (!ok) return rt.Fail(absl::StrCat("'", op, "' gives a number out of range"));
  return Value::Of(result);
}

Value Reals(Runtime& rt, const std::string& op, double a, double b) {
  if (op == "+") return Value::Of(a + b);
  if (op == "-") return Value::Of(a - b);
  if (op == "*") return Value::Of(a * b);
  if (op == "**") return Value::Of(std::pow(a, b));
  if (b == 0) return rt.Fail("a number is divided by 0");
  if (op == "/") return Value::Of(a / b);
  const double floor = std::floor(a / b);
  return Value::Of(op == "//" ? floor : a - floor * b);
}

}  // namespace

Value Arithmetic(Runtime& rt, const std::string& op, const Value& left, const Value& right) {
  if (op == "~") return Joined(rt, left, right);
  int64_t whole_a = 0, whole_b = 0;
  const bool whole_left = left.AsInteger(&whole_a), whole_right = right.AsInteger(&whole_b);
  if (whole_left && whole_right) return Integers(rt, op, whole_a, whole_b);
  double real_a = 0, real_b = 0;
  if (left.AsDouble(&real_a) && right.AsDouble(&real_b)) return Reals(rt, op, real_a, real_b);
  if (op == "+" && left.string() != nullptr && right.string() != nullptr) {
    return Joined(rt, left, right);
  }
  if (op == "+" && left.list() != nullptr && right.list() != nullptr) {
    return JoinedLists(rt, *left.list(), *right.list());
  }
  if (op == "*") {
    const bool left_many = left.string() != nullptr || left.list() != nullptr;
    const bool right_many = right.string() != nullptr || right.list() != nullptr;
    if (left_many && whole_right) return Repeated(rt, left, whole_b);
    if (right_many && whole_left) return Repeated(rt, right, whole_a);
  }
  return TypeError(rt, op, left, right);
}

}  // namespace cuvil::text::jinja
