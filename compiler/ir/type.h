// Types of CU-IR values: tensors over symbolic shapes, key/value state, and the step header.
//
// A Dim is a polynomial with integer coefficients over the graph's symbols, kept in one canonical
// form, so `==` is equality of polynomials: enough for reshape and concat of symbolic extents. All
// arithmetic is checked, because text and models from outside reach it. Plain values, any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status.h"

namespace cuvil::ir {

// A symbol's index in Graph::symbols().
struct SymbolId {
  int32_t value = -1;
  bool valid() const { return value >= 0; }
  friend auto operator<=>(SymbolId, SymbolId) = default;
};

// A run-time extent with known bounds. `prefer` lists values worth a plan of their own.
struct Symbol {
  std::string name;  // an identifier, unique in its graph
  int64_t min = 1;
  int64_t max = 1;
  std::vector<int64_t> prefer;
  friend bool operator==(const Symbol&, const Symbol&) = default;
};

// Extents beyond this are refused: it leaves room for a byte size of any element type in int64.
inline constexpr int64_t kExtentMax = int64_t{1} << 40;
inline constexpr int64_t kElementsMax = int64_t{1} << 48;
inline constexpr int kRankMax = 8;
// A polynomial larger than this means a hostile or broken graph, not a shape.
inline constexpr int kDimTermsMax = 64;
inline constexpr int kDimDegreeMax = 8;

// coef * product(symbols). The symbols are sorted and may repeat; none means a constant.
struct DimTerm {
  std::vector<SymbolId> symbols;
  int64_t coef = 0;
  friend bool operator==(const DimTerm&, const DimTerm&) = default;
};

class Dim {
 public:
  Dim() = default;        // zero
  Dim(int64_t constant);  // NOLINT: implicit, so that {S, 64} is a shape
  Dim(SymbolId symbol);   // NOLINT
  // Sorts, merges and drops zero terms; refuses overflow and too many or too long terms.
  static absl::StatusOr<Dim> FromTerms(std::vector<DimTerm> terms);

  // The value, when no symbol occurs.
  std::optional<int64_t> constant() const;
  // The symbol, when the dim is exactly one symbol.
  std::optional<SymbolId> symbol() const;
  bool is(int64_t value) const { return constant() == value; }
  // Highest degree first, then by symbol ids; the constant comes last. No zero coefficients.
  absl::Span<const DimTerm> terms() const { return terms_; }

  friend bool operator==(const Dim&, const Dim&) = default;

 private:
  std::vector<DimTerm> terms_;
};

// Errors: InvalidArgument on overflow or when the polynomial grows past the limits above.
absl::StatusOr<Dim> Add(const Dim& a, const Dim& b);
absl::StatusOr<Dim> Subtract(const Dim& a, const Dim& b);
absl::StatusOr<Dim> Multiply(const Dim& a, const Dim& b);
absl::StatusOr<Dim> Product(absl::Span<const Dim> dims);
// a / divisor when every coefficient divides, else nothing.
std::optional<Dim> DivideExactly(const Dim& a, int64_t divisor);

// One value per symbol, indexed by SymbolId.
using Bindings = std::vector<int64_t>;
absl::StatusOr<int64_t> Evaluate(const Dim& dim, const Bindings& bindings);
absl::StatusOr<std::vector<int64_t>> EvaluateAll(absl::Span<const Dim> dims,
                                                 const Bindings& bindings);

// Lowest and highest value over the symbols' ranges: exact for sums of separate symbols, else safe
// (wider). Errors: overflow, or an unknown symbol.
struct DimRange {
  int64_t min;
  int64_t max;
};
absl::StatusOr<DimRange> RangeOf(const Dim& dim, absl::Span<const Symbol> symbols);

// `S`, `64`, `2*S*T + 3`; unknown symbols print as `?7`.
std::string ToString(const Dim& dim, absl::Span<const Symbol> symbols);

struct TensorType {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;

  int rank() const { return static_cast<int>(dims.size()); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Keys and values of one attention layer for every sequence of the step. `heads` counts KV heads
// (the groups of grouped-query attention); `layout` is opaque here and names a packing the planner
// chose ("" before it has).
struct KvType {
  int64_t heads = 1;
  int64_t dim = 1;
  DType dtype = DType::kF32;
  std::string layout;
  friend bool operator==(const KvType&, const KvType&) = default;
};

// The step header: which sequence and position each row of the step is.
struct StepType {
  friend bool operator==(const StepType&, const StepType&) = default;
};

using Type = std::variant<TensorType, KvType, StepType>;

inline const TensorType* AsTensor(const Type& type) { return std::get_if<TensorType>(&type); }
inline const KvType* AsKv(const Type& type) { return std::get_if<KvType>(&type); }
inline bool IsStep(const Type& type) { return std::holds_alternative<StepType>(type); }

// `f32[S, 64]`, `kv<heads 3, dim 64, f32, layout "paged32">`, `step`.
std::string ToString(const Type& type, absl::Span<const Symbol> symbols);

// Refuses ranks, extents and element counts past the limits, negative extents, block types whose
// last extent is not a constant multiple of the block, and KV types with odd fields.
absl::Status CheckType(const Type& type, absl::Span<const Symbol> symbols);

// Number of elements, and bytes of a dense row-major tensor, at the given concrete extents.
absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> dims);
absl::StatusOr<int64_t> ByteSize(DType dtype, absl::Span<const int64_t> dims);

}  // namespace cuvil::ir
