#include <algorithm>
#include <cmath>

#include "base/blocks.h"
#include "compiler/ir/interp_ops.h"

namespace cuvil::ir::interp {
namespace {

// Where each input element lands in the reduced result.
class ReducedIndex {
 public:
  ReducedIndex(absl::Span<const int64_t> dims, absl::Span<const int64_t> axes)
      : dims_(dims.begin(), dims.end()), kept_(dims.begin(), dims.end()) {
    for (int64_t axis : axes) kept_[axis] = 1;
  }

  int64_t Of(int64_t flat) const {
    std::vector<int64_t> at = Coordinates(dims_, flat);
    for (size_t d = 0; d < at.size(); ++d) at[d] = std::min(at[d], kept_[d] - 1);
    return FlatIndex(kept_, at);
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<int64_t> kept_;  // dims_ with 1 for reduced axes
};

template <typename A>
A Start(OpKind op) {
  using Limits = std::numeric_limits<A>;
  switch (op) {
    case OpKind::kReduceProd:
      return A{1};
    case OpKind::kReduceMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case OpKind::kReduceMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return A{0};
  }
}

template <typename A>
A Accumulate(OpKind op, A sum, A x) {
  switch (op) {
    case OpKind::kReduceMax:
      return sum != sum ? sum : x != x || x > sum ? x : sum;
    case OpKind::kReduceMin:
      return sum != sum ? sum : x != x || x < sum ? x : sum;
    default:
      break;
  }
  if constexpr (std::is_integral_v<A>) {  // wraps
    const uint64_t a = static_cast<uint64_t>(sum);
    const uint64_t b = static_cast<uint64_t>(x);
    return static_cast<A>(op == OpKind::kReduceProd ? a * b : a + b);
  } else {
    return op == OpKind::kReduceProd ? sum * x : sum + x;
  }
}

// Splits a tensor at an axis: element (outer, i, inner) is at (outer * extent + i) * inner_count +
// inner.
struct AxisSplit {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;

  AxisSplit(absl::Span<const int64_t> dims, int64_t axis) : extent(dims[axis]) {
    for (int64_t d = 0; d < axis; ++d) outer *= dims[d];
    for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  }
  int64_t At(int64_t o, int64_t i, int64_t n) const { return (o * extent + i) * inner + n; }
};

// Whether x takes the place of best.
template <typename T>
bool Beats(OpKind op, T x, T best) {
  if (best != best) return false;
  return x != x || (op == OpKind::kArgMax ? x > best : x < best);
}

// One matrix product of a batch, in reals: out[m, n] from a[m, k] and row_of_b(n)[k].
struct MatrixShape {
  int64_t m, n, k;
};

MatrixShape ShapeOf(const TensorView& a, const Tensor& out) {
  return {a.dims[a.dims.size() - 2], out.dims.back(), a.dims.back()};
}

int64_t BatchCount(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (size_t d = 0; d + 2 < dims.size(); ++d) count *= dims[d];
  return count;
}

// Index of the matrix of an operand that the batch entry uses.
int64_t MatrixIndex(absl::Span<const int64_t> out, absl::Span<const int64_t> operand,
                    int64_t batch) {
  return BroadcastIndex(out.subspan(0, out.size() - 2), operand.subspan(0, operand.size() - 2),
                        batch);
}

void MatMulInt(const TensorView& a, const TensorView& b, bool transposed, Tensor& out) {
  const MatrixShape s = ShapeOf(a, out);
  const auto load = [](const TensorView& t, int64_t i) -> int64_t {
    return t.dtype == DType::kI8 ? LoadElement<int8_t>(t.dtype, t.bytes.data(), i)
                                 : LoadElement<uint8_t>(t.dtype, t.bytes.data(), i);
  };
  for (int64_t batch = 0; batch < BatchCount(out.dims); ++batch) {
    const int64_t a0 = MatrixIndex(out.dims, a.dims, batch) * s.m * s.k;
    const int64_t b0 = MatrixIndex(out.dims, b.dims, batch) * s.n * s.k;
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        int64_t sum = 0;
        for (int64_t l = 0; l < s.k; ++l) {
          sum += load(a, a0 + i * s.k + l) * load(b, b0 + (transposed ? j * s.k + l : l * s.n + j));
        }
        StoreElement<int32_t>(out.dtype, out.bytes.data(), (batch * s.m + i) * s.n + j,
                              static_cast<int32_t>(sum));
      }
    }
  }
}

// Column j of b (row j when transposed), decoded.
std::vector<double> InnerVector(const TensorView& b, int64_t matrix, const MatrixShape& s,
                                int64_t j, bool transposed) {
  std::vector<double> values(s.k);
  if (IsBlock(b.dtype)) {  // always transposed, one matrix
    const int64_t row_bytes = s.k / Info(b.dtype).block * Info(b.dtype).bytes;
    std::vector<float> row(s.k);
    DecodeRow(b.dtype, b.bytes.data() + j * row_bytes, s.k, row.data());
    values.assign(row.begin(), row.end());
    return values;
  }
  const int64_t start = matrix * s.n * s.k;
  WithComputeType(b.dtype, [&](auto tag) {
    using C = decltype(tag);
    for (int64_t l = 0; l < s.k; ++l) {
      const int64_t at = start + (transposed ? j * s.k + l : l * s.n + j);
      values[l] = static_cast<double>(LoadElement<C>(b.dtype, b.bytes.data(), at));
    }
  });
  return values;
}

void MatMulReal(const TensorView& a, const TensorView& b, bool transposed, Tensor& out) {
  const MatrixShape s = ShapeOf(a, out);
  const std::vector<double> reals = ToReals(a);
  for (int64_t batch = 0; batch < BatchCount(out.dims); ++batch) {
    const double* rows = reals.data() + MatrixIndex(out.dims, a.dims, batch) * s.m * s.k;
    const int64_t matrix = MatrixIndex(out.dims, b.dims, batch);
    for (int64_t j = 0; j < s.n; ++j) {
      const std::vector<double> column = InnerVector(b, matrix, s, j, transposed);
      for (int64_t i = 0; i < s.m; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < s.k; ++l) sum += rows[i * s.k + l] * column[l];
        StoreReal(out, (batch * s.m + i) * s.n + j, sum);
      }
    }
  }
}

// A norm's optional parameter: its values, or `fallback` everywhere.
std::vector<double> Parameter(const OpCall& call, size_t index, int64_t width, double fallback) {
  if (index >= call.inputs.size()) return std::vector<double>(width, fallback);
  return ToReals(call.In(index));
}

absl::Status Norm(OpCall& call, bool centred) {
  const TensorView x = call.In(0);
  const int64_t width = x.dims.back();
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const std::vector<double> values = ToReals(x);
  const std::vector<double> weight = Parameter(call, 1, width, 1.0);
  const std::vector<double> bias = Parameter(call, 2, width, 0.0);
  const double eps = call.attrs().Float("eps");
  for (int64_t start = 0; start < out.count(); start += width) {
    double mean = 0;
    for (int64_t j = 0; centred && j < width; ++j) mean += values[start + j] / width;
    double squares = 0;
    for (int64_t j = 0; j < width; ++j) squares += std::pow(values[start + j] - mean, 2);
    const double scale = 1.0 / std::sqrt(squares / width + eps);
    for (int64_t j = 0; j < width; ++j) {
      StoreReal(out, start + j, (values[start + j] - mean) * scale * weight[j] + bias[j]);
    }
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

}  // namespace

absl::Status Reduce(OpCall& call) {
  const TensorView x = call.In(0);
  const OpKind op = call.node.op;
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const ReducedIndex index(x.dims, call.attrs().Ints("axes"));
  const int64_t results = out.count();
  WithComputeType(x.dtype, [&](auto tag) {
    using C = decltype(tag);
    // The shape rule refuses bool; its instantiation would trip over vector<bool>.
    using A = std::conditional_t<std::is_floating_point_v<C>, double,
                                 std::conditional_t<std::is_same_v<C, bool>, uint8_t, C>>;
    std::vector<A> sums(results, Start<A>(op));
    for (int64_t i = 0; i < x.count(); ++i) {
      A& sum = sums[index.Of(i)];
      sum = Accumulate<A>(op, sum, static_cast<A>(LoadElement<C>(x.dtype, x.bytes.data(), i)));
    }
    for (int64_t i = 0; i < results; ++i) {
      A sum = sums[i];
      if (op == OpKind::kReduceMean) sum /= static_cast<A>(x.count() / results);
      StoreElement<C>(out.dtype, out.bytes.data(), i, static_cast<C>(sum));
    }
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status ArgReduce(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const AxisSplit split(x.dims, call.attrs().Int("axis"));
  WithComputeType(x.dtype, [&](auto tag) {
    using C = decltype(tag);
    const auto load = [&](int64_t i) { return LoadElement<C>(x.dtype, x.bytes.data(), i); };
    for (int64_t o = 0; o < split.outer; ++o) {
      for (int64_t n = 0; n < split.inner; ++n) {
        int64_t best = 0;
        for (int64_t i = 1; i < split.extent; ++i) {
          if (Beats<C>(call.node.op, load(split.At(o, i, n)), load(split.At(o, best, n)))) best = i;
        }
        StoreElement<int32_t>(out.dtype, out.bytes.data(), o * split.inner + n,
                              static_cast<int32_t>(best));
      }
    }
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Softmax(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const AxisSplit split(x.dims, call.attrs().Int("axis"));
  const std::vector<double> values = ToReals(x);
  for (int64_t o = 0; o < split.outer; ++o) {
    for (int64_t n = 0; n < split.inner; ++n) {
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t i = 0; i < split.extent; ++i) max = std::max(max, values[split.At(o, i, n)]);
      double sum = 0;
      for (int64_t i = 0; i < split.extent; ++i) sum += std::exp(values[split.At(o, i, n)] - max);
      for (int64_t i = 0; i < split.extent; ++i) {
        const int64_t at = split.At(o, i, n);
        StoreReal(out, at, std::exp(values[at] - max) / sum);
      }
    }
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status MatMul(OpCall& call) {
  const TensorView a = call.In(0);
  const TensorView b = call.In(1);
  const bool transposed = call.attrs().Bool("transpose_b");
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  if (out.dtype == DType::kI32) {
    MatMulInt(a, b, transposed, out);
  } else {
    MatMulReal(a, b, transposed, out);
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status RmsNorm(OpCall& call) { return Norm(call, /*centred=*/false); }
absl::Status LayerNorm(OpCall& call) { return Norm(call, /*centred=*/true); }

}  // namespace cuvil::ir::interp
