// String operations that the methods and the filters of templates share. All keep the marks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/marked_string.h"

namespace cuvil::text::jinja {

// Where `part`, not empty, is first found from `from` on; npos when nowhere. Linear.
size_t FindText(std::string_view text, std::string_view part, size_t from);

// Without the white space, or the characters in *chars, at the chosen ends.
MarkedString Strip(const MarkedString& text, const std::string* chars, bool left, bool right);

// ASCII letters only: other letters stay as they are.
enum class Case { kUpper, kLower, kTitle, kCapitalize };
MarkedString ChangeCase(const MarkedString& text, Case to);

// Each `from` by `to`, at most *count of them.
Value Replace(Runtime& rt, const MarkedString& text, const Value& from, const Value& to,
              const Value* count);

}  // namespace cuvil::text::jinja
