#include "compiler/ir/type.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked.h"

namespace cuvil::ir {
namespace {

// Higher degree first, then by symbol ids: the order in which terms print.
bool Precedes(const DimTerm& a, const DimTerm& b) {
  if (a.symbols.size() != b.symbols.size()) return a.symbols.size() > b.symbols.size();
  return a.symbols < b.symbols;
}

absl::Status Overflow() {
  return absl::InvalidArgumentError("a shape expression overflows 64 bits");
}

}  // namespace

Dim::Dim(int64_t constant) {
  if (constant != 0) terms_.push_back({{}, constant});
}

Dim::Dim(SymbolId symbol) { terms_.push_back({{symbol}, 1}); }

absl::StatusOr<Dim> Dim::FromTerms(std::vector<DimTerm> terms) {
  for (DimTerm& term : terms) {
    if (term.symbols.size() > kDimDegreeMax) {
      return absl::InvalidArgumentError(absl::StrCat("a shape expression multiplies more than ",
                                                     kDimDegreeMax, " symbols; simplify it"));
    }
    std::sort(term.symbols.begin(), term.symbols.end());
  }
  std::sort(terms.begin(), terms.end(), Precedes);
  Dim dim;
  for (DimTerm& term : terms) {
    if (!dim.terms_.empty() && dim.terms_.back().symbols == term.symbols) {
      if (!CheckedAdd(dim.terms_.back().coef, term.coef, &dim.terms_.back().coef)) {
        return Overflow();
      }
    } else {
      dim.terms_.push_back(std::move(term));
    }
  }
  std::erase_if(dim.terms_, [](const DimTerm& term) { return term.coef == 0; });
  for (const DimTerm& term : dim.terms_) {
    // The lowest integer has no positive counterpart, which text and subtraction would trip over.
    if (term.coef == std::numeric_limits<int64_t>::min()) return Overflow();
  }
  if (dim.terms_.size() > kDimTermsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shape expression has more than ", kDimTermsMax, " terms; simplify it"));
  }
  return dim;
}

std::optional<int64_t> Dim::constant() const {
  if (terms_.empty()) return 0;
  if (terms_.size() == 1 && terms_[0].symbols.empty()) return terms_[0].coef;
  return std::nullopt;
}

std::optional<SymbolId> Dim::symbol() const {
  if (terms_.size() != 1 || terms_[0].symbols.size() != 1 || terms_[0].coef != 1) {
    return std::nullopt;
  }
  return terms_[0].symbols[0];
}

absl::StatusOr<Dim> Add(const Dim& a, const Dim& b) {
  std::vector<DimTerm> terms(a.terms().begin(), a.terms().end());
  terms.insert(terms.end(), b.terms().begin(), b.terms().end());
  return Dim::FromTerms(std::move(terms));
}

absl::StatusOr<Dim> Subtract(const Dim& a, const Dim& b) {
  std::vector<DimTerm> terms(a.terms().begin(), a.terms().end());
  for (DimTerm term : b.terms()) {
    if (!__builtin_sub_overflow(int64_t{0}, term.coef, &term.coef)) {
      terms.push_back(std::move(term));
    } else {
      return Overflow();
    }
  }
  return Dim::FromTerms(std::move(terms));
}

absl::StatusOr<Dim> Multiply(const Dim& a, const Dim& b) {
  std::vector<DimTerm> terms;
  for (const DimTerm& x : a.terms()) {
    for (const DimTerm& y : b.terms()) {
      DimTerm term = x;
      term.symbols.insert(term.symbols.end(), y.symbols.begin(), y.symbols.end());
      if (!CheckedMul(x.coef, y.coef, &term.coef)) return Overflow();
      terms.push_back(std::move(term));
    }
  }
  return Dim::FromTerms(std::move(terms));
}

absl::StatusOr<Dim> Product(absl::Span<const Dim> dims) {
  Dim product = 1;
  for (const Dim& dim : dims) {
    ASSIGN_OR_RETURN(product, Multiply(product, dim));
  }
  return product;
}

std::optional<Dim> DivideExactly(const Dim& a, int64_t divisor) {
  if (divisor <= 0) return std::nullopt;
  std::vector<DimTerm> terms(a.terms().begin(), a.terms().end());
  for (DimTerm& term : terms) {
    if (term.coef % divisor != 0) return std::nullopt;
    term.coef /= divisor;
  }
  absl::StatusOr<Dim> dim = Dim::FromTerms(std::move(terms));
  if (!dim.ok()) return std::nullopt;
  return *std::move(dim);
}

absl::StatusOr<int64_t> Evaluate(const Dim& dim, const Bindings& bindings) {
  int64_t sum = 0;
  for (const DimTerm& term : dim.terms()) {
    int64_t product = term.coef;
    for (SymbolId symbol : term.symbols) {
      if (!symbol.valid() || symbol.value >= static_cast<int64_t>(bindings.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("symbol ", symbol.value, " of a shape has no value; bind it"));
      }
      if (!CheckedMul(product, bindings[symbol.value], &product)) return Overflow();
    }
    if (!CheckedAdd(sum, product, &sum)) return Overflow();
  }
  return sum;
}

absl::StatusOr<std::vector<int64_t>> EvaluateAll(absl::Span<const Dim> dims,
                                                 const Bindings& bindings) {
  std::vector<int64_t> values;
  for (const Dim& dim : dims) {
    ASSIGN_OR_RETURN(int64_t value, Evaluate(dim, bindings));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<DimRange> RangeOf(const Dim& dim, absl::Span<const Symbol> symbols) {
  DimRange sum{0, 0};
  for (const DimTerm& term : dim.terms()) {
    // Symbols are never negative, so the product of the bounds bounds the product.
    int64_t low = 1;
    int64_t high = 1;
    for (SymbolId id : term.symbols) {
      if (!id.valid() || id.value >= static_cast<int64_t>(symbols.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("a shape uses symbol ", id.value, ", but the graph has ", symbols.size()));
      }
      const Symbol& symbol = symbols[id.value];
      if (!CheckedMul(low, symbol.min, &low) || !CheckedMul(high, symbol.max, &high)) {
        return Overflow();
      }
    }
    if (!CheckedMul(low, term.coef, &low) || !CheckedMul(high, term.coef, &high)) return Overflow();
    if (low > high) std::swap(low, high);
    if (!CheckedAdd(sum.min, low, &sum.min) || !CheckedAdd(sum.max, high, &sum.max)) {
      return Overflow();
    }
  }
  return sum;
}

std::string ToString(const Dim& dim, absl::Span<const Symbol> symbols) {
  if (dim.terms().empty()) return "0";
  std::string text;
  for (const DimTerm& term : dim.terms()) {
    // The most negative coefficient has no positive counterpart, so print magnitudes unsigned.
    const uint64_t magnitude =
        term.coef < 0 ? uint64_t{0} - static_cast<uint64_t>(term.coef) : term.coef;
    if (text.empty()) {
      if (term.coef < 0) text += "-";
    } else {
      text += term.coef < 0 ? " - " : " + ";
    }
    std::vector<std::string> factors;
    if (magnitude != 1 || term.symbols.empty()) factors.push_back(absl::StrCat(magnitude));
    for (SymbolId id : term.symbols) {
      const bool known = id.valid() && id.value < static_cast<int64_t>(symbols.size());
      factors.push_back(known ? symbols[id.value].name : absl::StrCat("?", id.value));
    }
    absl::StrAppend(&text, absl::StrJoin(factors, "*"));
  }
  return text;
}

std::string ToString(const Type& type, absl::Span<const Symbol> symbols) {
  if (const TensorType* tensor = AsTensor(type)) {
    return absl::StrCat(
        Sv(Info(tensor->dtype).name), "[",
        absl::StrJoin(tensor->dims, ", ",
                      [&](std::string* out, const Dim& d) { *out += ToString(d, symbols); }),
        "]");
  }
  if (const KvType* kv = AsKv(type)) {
    std::string text =
        absl::StrCat("kv<heads ", kv->heads, ", dim ", kv->dim, ", ", Sv(Info(kv->dtype).name));
    if (!kv->layout.empty()) absl::StrAppend(&text, ", layout \"", kv->layout, "\"");
    return text + ">";
  }
  return "step";
}

namespace {

absl::Status CheckTensor(const TensorType& type, absl::Span<const Symbol> symbols) {
  if (type.rank() > kRankMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", type.rank(), " is over the limit of ", kRankMax));
  }
  int64_t elements = 1;
  for (const Dim& dim : type.dims) {
    ASSIGN_OR_RETURN(DimRange range, RangeOf(dim, symbols));
    if (range.min < 0 || range.max > kExtentMax) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", ToString(dim, symbols), " can be ",
                                                     range.min, "..", range.max, ", outside 0..",
                                                     kExtentMax));
    }
    // An extent of zero must not hide an oversized neighbour.
    if (!CheckedMul(elements, std::max<int64_t>(range.max, 1), &elements) ||
        elements > kElementsMax) {
      return absl::InvalidArgumentError(absl::StrCat("a tensor ", ToString(Type(type), symbols),
                                                     " can exceed ", kElementsMax, " elements"));
    }
  }
  const DTypeInfo& info = Info(type.dtype);
  if (info.block == 1) return absl::OkStatus();
  const std::optional<int64_t> last = type.dims.empty() ? 0 : type.dims.back().constant();
  if (!last || type.dims.empty() || *last % info.block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the last extent of a ", Sv(info.name),
                                                   " tensor must be a constant multiple of ",
                                                   info.block));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckType(const Type& type, absl::Span<const Symbol> symbols) {
  if (const TensorType* tensor = AsTensor(type)) return CheckTensor(*tensor, symbols);
  if (const KvType* kv = AsKv(type)) {
    // 2^16 heads or elements per head is far past any model.
    if (kv->heads < 1 || kv->heads > 65536 || kv->dim < 1 || kv->dim > 65536) {
      return absl::InvalidArgumentError(
          absl::StrCat("kv state with ", kv->heads, " heads of ", kv->dim, " is outside 1..65536"));
    }
    if (IsBlock(kv->dtype) || !Info(kv->dtype).is_float || kv->dtype == DType::kF64) {
      return absl::InvalidArgumentError(
          absl::StrCat("kv state must hold f32, f16 or bf16, not ", Sv(Info(kv->dtype).name)));
    }
    for (char c : kv->layout) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') {
        return absl::InvalidArgumentError("a kv layout is letters, digits, '_' and '.'");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", dim, " is negative"));
    }
    if (!CheckedMul(count, dim, &count) || count > kElementsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor exceeds ", kElementsMax, " elements"));
    }
  }
  return count;
}

absl::StatusOr<int64_t> ByteSize(DType dtype, absl::Span<const int64_t> dims) {
  ASSIGN_OR_RETURN(const int64_t count, ElementCount(dims));
  const DTypeInfo& info = Info(dtype);
  if (info.block > 1 && (dims.empty() || dims.back() % info.block != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", Sv(info.name), " must be multiples of ", info.block, " elements"));
  }
  return count / info.block * info.bytes;  // at most 2^48 * 8
}

}  // namespace cuvil::ir
