// The arithmetic of templates: Python's, with integers of 64 bits that are refused on overflow.
#pragma once

#include <string>

#include "text/jinja_runtime.h"

namespace cuvil::text::jinja {

// `left op right` for + - * / // % ** ~.
Value Arithmetic(Runtime& rt, const std::string& op, const Value& left, const Value& right);

}  // namespace cuvil::text::jinja
