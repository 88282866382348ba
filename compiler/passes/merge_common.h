// MergeCommon: pure nodes with the same op, inputs and attributes become the first of them.
#pragma once

#include "base/status.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/rewrite.h"

namespace cuvil::passes {

absl::StatusOr<int> MergeCommon(ir::Graph& graph, ir::Fuel& fuel);

}  // namespace cuvil::passes
