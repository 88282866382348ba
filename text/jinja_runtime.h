// What one rendering may still spend, and the first error it met. After an error every operation
// returns undefined quickly, and the rendering ends with the error. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_value.h"

namespace cuvil::text::jinja {

// Steps: expressions and statements evaluated, list elements made. Published templates take a few
// dozen a message.
inline constexpr int64_t kStepsMax = 1'000'000;
// Bytes read and written by string operations, in all.
inline constexpr int64_t kBytesMax = int64_t{512} << 20;
// Of the output, and of any one value.
inline constexpr size_t kOutputMax = size_t{8} << 20;
// Expressions, statements and macro calls under way at once.
inline constexpr int kRunDepthMax = 300;

class Runtime {
 public:
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }

  // Records the first error; returns undefined, for `return rt.Fail(...)`.
  Value Fail(const std::string& what);
  // Spends; false, with an error recorded, when nothing is left.
  bool Steps(int64_t count = 1);
  bool Bytes(size_t count);
  // Spends for the value's making and refuses it when it is too large or nested too deep.
  Value Made(Value value);
  Value Made(MarkedString value) { return Made(Value::Of(std::move(value))); }

 private:
  absl::Status status_;
  int line_ = 0;
  int64_t steps_ = kStepsMax;
  int64_t bytes_ = kBytesMax;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at a position or of a name; null when it is not given.
  const Value* Find(size_t position, std::string_view name) const;
};

// `operand | name(arguments)`
Value ApplyFilter(Runtime& rt, const std::string& name, const Value& operand,
                  const Arguments& arguments);
// `operand is name(arguments)`
bool ApplyTest(Runtime& rt, const std::string& name, const Value& operand,
               const Arguments& arguments);
// `operand.name(arguments)` for strings and mappings.
Value CallMethod(Runtime& rt, const Value& operand, const std::string& name,
                 const Arguments& arguments);

// `operand[key]` and `operand.key`; undefined where there is none.
Value GetItem(Runtime& rt, const Value& operand, const Value& key);
// `left in right`
bool Contains(Runtime& rt, const Value& item, const Value& container);
// Whether `a` sorts before `b`: numbers and strings only.
bool Less(Runtime& rt, const Value& a, const Value& b);
// operand[start:stop:step]; any of the three may be none.
Value Slice(Runtime& rt, const Value& operand, const Value& start, const Value& stop,
            const Value& step);
// The elements of a list, the keys of a mapping, the characters of a string.
std::vector<Value> Elements(Runtime& rt, const Value& value);
// The number of elements, as len() counts them; -1, with an error recorded, for what has none.
int64_t Length(Runtime& rt, const Value& value);

}  // namespace cuvil::text::jinja
