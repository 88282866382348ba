// A parsed chat template. Immutable; any thread. Its depth is limited when it is parsed, so walking
// and freeing it need no limit of their own.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace cuvil::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kLiteral,      // literal
  kName,         // text
  kList,         // args
  kTuple,        // args
  kDict,         // args: key, value, key, value, ...
  kUnary,        // text: "-" "+" "not"; args[0]
  kBinary,       // text: the operator; args[0], args[1]
  kCompare,      // args[0] ops[0] args[1] ops[1] ...
  kConditional,  // args: then, condition, else (may be null)
  kAttribute,    // args[0] . text
  kIndex,        // args[0] [ args[1] ]
  kSlice,        // args: operand, start, stop, step (the last three may be null)
  kCall,         // args[0] ( args[1] ..., named )
  kFilter,       // args[0] | text ( args[1] ..., named )
  kTest,         // args[0] is text ( args[1] ... ), negated
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  int line = 0;
  int depth = 1;
  bool negated = false;
  std::string text;
  Value literal;
  std::vector<ExprPtr> args;
  std::vector<std::string> ops;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind {
  kText,    // text
  kOutput,  // expr
  kIf,      // branches, then otherwise
  kFor,     // names in expr if condition: body, else otherwise
  kSet,     // names (or names[0].attribute) = expr, or = the rendered body when expr is null
  kMacro,   // text ( names, with defaults ): body
  kBlock,   // body, as it stands
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  std::string text;
  std::string attribute;
  std::vector<std::string> names;
  std::vector<ExprPtr> defaults;  // of names; null where there is none
  ExprPtr expr;
  ExprPtr condition;
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block body;
  Block otherwise;
};

}  // namespace cuvil::text::jinja
