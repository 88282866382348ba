// Builds the expression of a value at given coordinates, inlining producers as fusion says.
#pragma once

#include <vector>

#include "compiler/lower/nodes.h"

namespace cuvil::lower {

// The coordinates of a point of a tensor, one form per dim.
using Point = std::vector<Affine>;

// The row-major element number of a point.
absl::StatusOr<Affine> Flat(absl::Span<const ir::Dim> dims, const Point& at);

class ExprBuilder {
 public:
  ExprBuilder(const ir::Graph& graph, const Fusion& fusion, Environment& env, NodeNest& out)
      : g_(graph), fusion_(fusion), env_(env), out_(out) {}

  // The element of `value` at the point: inlined, a constant, or a load.
  absl::StatusOr<ExprPtr> Value(ir::ValueId value, const Point& at);
  // The same, but of a node that is being given memory: its op, at least, is computed here.
  absl::StatusOr<ExprPtr> Compute(const ir::Node& node, const Point& at);
  // A load of stored data.
  absl::StatusOr<ExprPtr> Load(ir::ValueId value, const Point& at);

 private:
  absl::StatusOr<ExprPtr> Elementwise(const ir::Node& node, const Point& at);
  absl::StatusOr<ExprPtr> Gather(const ir::Node& node, const Point& at);
  absl::StatusOr<Point> Sliced(const ir::Node& node, const Point& at);
  // The point of an operand that broadcasts to a tensor whose point is `at`.
  Point Broadcast(ir::ValueId operand, const Point& at) const;

  const ir::Graph& g_;
  const Fusion& fusion_;
  Environment& env_;
  NodeNest& out_;
};

}  // namespace cuvil::lower
