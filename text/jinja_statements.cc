#include <algorithm>

#include "text/jinja_eval.h"

namespace cuvil::text::jinja {

Interpreter::Level::Level(Interpreter* interpreter) : interpreter_(interpreter) {
  if (++interpreter_->depth_ > kRunDepthMax) interpreter_->rt_.Fail("rendering is nested too deep");
}

absl::StatusOr<MarkedString> Interpreter::Run(const Block& block) {
  MarkedString out;
  Execute(block, &out);
  if (rt_.failed()) return rt_.status();
  return out;
}

Interpreter::Flow Interpreter::Execute(const Block& block, MarkedString* out) {
  const Level level(this);
  for (const auto& stmt : block) {
    rt_.set_line(stmt->line);
    if (!rt_.Steps()) break;
    if (const Flow flow = ExecuteOne(*stmt, out); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteOne(const Stmt& stmt, MarkedString* out) {
  switch (stmt.kind) {
    case StmtKind::kText:
      Write(Value::Of(stmt.text, true), out);
      break;
    case StmtKind::kOutput:
      Write(Evaluate(*stmt.expr), out);
      break;
    case StmtKind::kIf:
      return ExecuteIf(stmt, out);
    case StmtKind::kFor:
      return ExecuteFor(stmt, out);
    case StmtKind::kSet:
      ExecuteSet(stmt);
      break;
    case StmtKind::kMacro:
      Assign(stmt.text, Value(Value::Data(Macro{&stmt})));
      break;
    case StmtKind::kBlock:
      return Execute(stmt.body, out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::Write(const Value& value, MarkedString* out) {
  if (!rt_.Bytes(value.weight())) return;
  if (value.name_space() != nullptr || value.builtin() != nullptr || value.macro() != nullptr) {
    rt_.Fail(absl::StrCat(value.kind(), " cannot be printed"));
    return;
  }
  out->Append(Print(value));
  if (out->size() > kOutputMax) {
    rt_.Fail(absl::StrCat("the output is larger than ", kOutputMax, " bytes"));
  }
}

Interpreter::Flow Interpreter::ExecuteIf(const Stmt& stmt, MarkedString* out) {
  for (const auto& [condition, body] : stmt.branches) {
    if (Evaluate(*condition).Truthy()) return Execute(body, out);
    if (rt_.failed()) return Flow::kNext;
  }
  return Execute(stmt.otherwise, out);
}

// The elements to loop over, after the loop's own condition.
std::vector<Value> Interpreter::LoopItems(const Stmt& stmt) {
  std::vector<Value> items = Elements(rt_, Evaluate(*stmt.expr));
  if (stmt.condition == nullptr || rt_.failed()) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    frames_.emplace_back();
    Unpack(stmt.names, item);
    if (Evaluate(*stmt.condition).Truthy()) kept.push_back(std::move(item));
    frames_.pop_back();
    if (rt_.failed()) break;
  }
  return kept;
}

Interpreter::Flow Interpreter::ExecuteFor(const Stmt& stmt, MarkedString* out) {
  const std::vector<Value> items = LoopItems(stmt);
  if (rt_.failed()) return Flow::kNext;
  if (items.empty()) return Execute(stmt.otherwise, out);
  RunLoop(stmt, items, out);
  return Flow::kNext;
}

void Interpreter::RunLoop(const Stmt& stmt, const std::vector<Value>& items, MarkedString* out) {
  const auto count = static_cast<int64_t>(items.size());
  // A round costs as much as its loop fields.
  constexpr int64_t kRoundSteps = 9;
  for (int64_t i = 0; i < count && rt_.Steps(kRoundSteps); ++i) {
    Dict loop;
    const auto set = [&loop](std::string_view key, Value value) {
      loop.Set(MarkedString(key, true), std::move(value));
    };
    set("index", Value::Of(i + 1));
    set("index0", Value::Of(i));
    set("first", Value::Of(i == 0));
    set("last", Value::Of(i + 1 == count));
    set("length", Value::Of(count));
    set("revindex", Value::Of(count - i));
    set("revindex0", Value::Of(count - i - 1));
    const auto neighbour = [&](int64_t at) { return at < 0 || at >= count ? Value() : items[at]; };
    set("previtem", neighbour(i - 1));
    set("nextitem", neighbour(i + 1));
    frames_.emplace_back();
    Assign("loop", Value::Of(std::move(loop)));
    Unpack(stmt.names, items[i]);
    const Flow flow = rt_.failed() ? Flow::kBreak : Execute(stmt.body, out);
    frames_.pop_back();
    if (flow == Flow::kBreak) break;
  }
}

void Interpreter::Unpack(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    Assign(names[0], value);
    return;
  }
  const List* list = value.list();
  if (list == nullptr || list->items.size() != names.size()) {
    rt_.Fail(absl::StrCat("cannot unpack ", value.kind(), " into ", names.size(), " names"));
    return;
  }
  for (size_t i = 0; i < names.size(); ++i) Assign(names[i], list->items[i]);
}

void Interpreter::ExecuteSet(const Stmt& stmt) {
  Value value;
  if (stmt.expr != nullptr) {
    value = Evaluate(*stmt.expr);
  } else {
    MarkedString text;
    Execute(stmt.body, &text);
    value = rt_.Made(std::move(text));
  }
  if (rt_.failed()) return;
  if (stmt.attribute.empty()) {
    Unpack(stmt.names, value);
  } else {
    SetAttribute(stmt.names[0], stmt.attribute, std::move(value));
  }
}

void Interpreter::SetAttribute(const std::string& name, const std::string& attribute, Value value) {
  const Value target = Lookup(name);
  Dict* space = target.name_space();
  if (space == nullptr) {
    rt_.Fail(
        absl::StrCat("'", name, "' is ", target.kind(), "; only a namespace takes attributes"));
    return;
  }
  if (Storable(value)) space->Set(MarkedString(attribute, true), std::move(value));
}

Value Interpreter::Lookup(const std::string& name) {
  for (size_t i = frames_.size(); i > 0; --i) {
    if (i <= visible_from_ && i != 1) continue;
    const auto found = frames_[i - 1].find(name);
    if (found != frames_[i - 1].end()) return found->second;
  }
  for (const char* builtin : {"range", "namespace", "dict", "raise_exception", "strftime_now"}) {
    if (name == builtin) return Value(Value::Data(Builtin{name}));
  }
  return Value();
}

void Interpreter::Assign(const std::string& name, Value value) {
  frames_.back().insert_or_assign(name, std::move(value));
}

}  // namespace cuvil::text::jinja
