#include "compiler/lower/nest.h"

#include <functional>
#include <set>

namespace cuvil::lower {
namespace {

void VisitExpr(const ExprPtr& e, std::set<const Expr*>& seen,
               const std::function<void(Affine&)>& visit) {
  if (!e || !seen.insert(e.get()).second) return;
  if (e->kind == Expr::Kind::kLoad || e->kind == Expr::Kind::kCounter) visit(e->at);
  for (const ExprPtr& arg : e->args) VisitExpr(arg, seen, visit);
}

// Every address and counter of the nest, each once.
void VisitAffine(Nest& nest, const std::function<void(Affine&)>& visit) {
  std::set<const Expr*> seen;
  for (Reduction& r : nest.reductions) {
    VisitExpr(r.value, seen, visit);
    VisitExpr(r.other, seen, visit);
  }
  for (Store& s : nest.stores) {
    VisitExpr(s.value, seen, visit);
    visit(s.at);
  }
}

void DropLoop(Nest& nest, std::vector<ir::Dim>& group, size_t in_group, size_t loop) {
  group.erase(group.begin() + in_group);
  VisitAffine(nest, [&](Affine& a) { a.coefs.erase(a.coefs.begin() + loop); });
}

// Whether loops `loop` and `loop + 1` (of extent `inner`) advance every address like one loop.
bool Mergeable(Nest& nest, size_t loop, const ir::Dim& inner) {
  bool fits = true;
  VisitAffine(nest, [&](Affine& a) {
    const absl::StatusOr<ir::Dim> product = ir::Multiply(a.coefs[loop + 1], inner);
    fits = fits && product.ok() && *product == a.coefs[loop];
  });
  return fits;
}

absl::Status SimplifyGroup(Nest& nest, std::vector<ir::Dim>& group, size_t first) {
  for (size_t i = group.size(); i-- > 0;) {
    if (group[i].is(1)) DropLoop(nest, group, i, first + i);
  }
  for (size_t i = group.size(); i-- > 1;) {
    if (!Mergeable(nest, first + i - 1, group[i])) continue;
    const absl::StatusOr<ir::Dim> extent = ir::Multiply(group[i - 1], group[i]);
    if (!extent.ok()) continue;  // too long a polynomial: two loops then
    group[i] = *extent;
    DropLoop(nest, group, i - 1, first + i - 1);
  }
  return absl::OkStatus();
}

}  // namespace

int Nest::BufferOf(int storage, bool written) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].storage == storage) {
      buffers[i].written |= written;
      return static_cast<int>(i);
    }
  }
  buffers.push_back({storage, written});
  return static_cast<int>(buffers.size()) - 1;
}

absl::Status Simplify(Nest& nest) {
  RETURN_IF_ERROR(SimplifyGroup(nest, nest.reduced, nest.kept.size()));
  return SimplifyGroup(nest, nest.kept, 0);
}

}  // namespace cuvil::lower
