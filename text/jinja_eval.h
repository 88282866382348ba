// Runs a parsed template. One Interpreter per rendering; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace cuvil::text::jinja {

class Interpreter {
 public:
  // `now`: seconds since 1970, for strftime_now. The template must outlive the interpreter.
  explicit Interpreter(int64_t now) : now_(now) {}

  void SetGlobal(const std::string& name, Value value) { Assign(name, std::move(value)); }

  // The output, or the first error in one sentence.
  absl::StatusOr<MarkedString> Run(const Block& block);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using Frame = absl::flat_hash_map<std::string, Value>;

  // Counts what is under way while it lives.
  class Level {
   public:
    explicit Level(Interpreter* interpreter);
    ~Level() { --interpreter_->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Interpreter* interpreter_;
  };

  // -- statements
  Flow Execute(const Block& block, MarkedString* out);
  Flow ExecuteOne(const Stmt& stmt, MarkedString* out);
  void Write(const Value& value, MarkedString* out);
  Flow ExecuteIf(const Stmt& stmt, MarkedString* out);
  Flow ExecuteFor(const Stmt& stmt, MarkedString* out);
  void RunLoop(const Stmt& stmt, const std::vector<Value>& items, MarkedString* out);
  std::vector<Value> LoopItems(const Stmt& stmt);
  void ExecuteSet(const Stmt& stmt);
  void Unpack(const std::vector<std::string>& names, const Value& value);
  void SetAttribute(const std::string& name, const std::string& attribute, Value value);

  // -- expressions
  Value Evaluate(const Expr& expr);
  Value EvaluateInner(const Expr& expr);
  Value Sequence(const Expr& expr);
  Value Mapping(const Expr& expr);
  Value Unary(const Expr& expr);
  Value Binary(const Expr& expr);
  Value Compare(const Expr& expr);
  bool CompareOne(const std::string& op, const Value& left, const Value& right);
  Value Attribute(const Expr& expr);
  Value SliceOf(const Expr& expr);
  Value Call(const Expr& expr);
  Value Filter(const Expr& expr);
  Value Test(const Expr& expr);
  bool CollectArguments(const Expr& expr, Arguments* arguments);
  // The first sight of a value that becomes part of another: namespaces may not.
  bool Storable(const Value& value);

  // -- functions
  Value CallBuiltin(const std::string& name, Arguments arguments);
  Value CallMacro(const Stmt& macro, const Arguments& arguments);
  Value Range(const Arguments& arguments);
  Value StrftimeNow(const Arguments& arguments);

  // -- names
  Value Lookup(const std::string& name);
  void Assign(const std::string& name, Value value);

  Runtime rt_;
  std::vector<Frame> frames_ = std::vector<Frame>(1);
  size_t visible_from_ = 0;  // frames a macro call hides: those between the globals and here
  int depth_ = 0;
  int64_t now_ = 0;
};

}  // namespace cuvil::text::jinja
