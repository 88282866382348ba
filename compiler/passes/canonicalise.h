// Canonicalise: x+0, x*1, x/1, --x, reshape to the same shape, a cast to the same dtype, a
// transpose that permutes nothing all become x; reshape of reshape and transpose of transpose
// become one. Only exact identities: x*0 stays, because x may be NaN.
#pragma once

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/rewrite.h"

namespace cuvil::passes {

absl::StatusOr<int> Canonicalise(ir::Graph& graph, ir::Fuel& fuel);

}  // namespace cuvil::passes
