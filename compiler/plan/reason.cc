#include "compiler/plan/reason.h"

namespace cuvil::plan {

using passes::GroupKind;

std::string_view ReasonFor(const passes::Group& g) {
  switch (g.kind) {
    case GroupKind::kEmbed:
      return "rows are decoded where they are read";
    case GroupKind::kHeads:
      return "q, k and v read the same rows, so one pass over them serves norm, products, "
             "rotation and the page write";
    case GroupKind::kAttention:
      return "scores never leave the worker's scratch";
    case GroupKind::kLinear:
      return g.residual.valid() ? "the product is added to the residual stream where it lies"
                                : "a norm follows the product, so it is stored first";
    case GroupKind::kNormAdd:
      return "norm and residual share one pass over the row";
    case GroupKind::kGated:
      return "gate and up rows alternate, so each tile finishes its own slice of the "
             "feed-forward";
    case GroupKind::kLogits:
      return "only the wanted rows are normed and multiplied";
  }
  return "";
}

}  // namespace cuvil::plan
