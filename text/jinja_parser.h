// Parses a chat template. Everything Jinja has and this parser does not know is refused by name.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja_ast.h"

namespace cuvil::text::jinja {

// Longer templates are refused; the longest published ones have some 20 KB.
inline constexpr size_t kSourceBytesMax = size_t{1} << 20;
// Nesting of expressions, and of blocks: several times what published templates need.
inline constexpr int kExprDepthMax = 100;
inline constexpr int kBlockDepthMax = 40;
// Of one call, filter or test: `map` may pass its arguments on to another filter, one fewer each
// time.
inline constexpr size_t kArgumentsMax = 32;

absl::StatusOr<Block> ParseTemplate(std::string_view source);

}  // namespace cuvil::text::jinja
