#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/blocks.h"
#include "compiler/ir/interp_ops.h"

namespace cuvil::ir::interp {
namespace {

// Fills `out` so that its element i is element source(i) of x.
template <typename Source>
void CopyElements(const TensorView& x, Tensor& out, Source source) {
  const size_t size = Info(x.dtype).bytes;
  const int64_t count = out.count();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(&out.bytes[i * size], &x.bytes[source(i) * size], size);
  }
}

// Reads an index tensor element and checks its range.
absl::StatusOr<int64_t> IndexAt(const TensorView& indices, int64_t i, int64_t extent) {
  const int64_t index = indices.dtype == DType::kI32
                            ? LoadElement<int32_t>(indices.dtype, indices.bytes.data(), i)
                            : LoadElement<int64_t>(indices.dtype, indices.bytes.data(), i);
  if (index < 0 || index >= extent) {
    return absl::OutOfRangeError(absl::StrCat("index ", index, " is outside 0..", extent - 1));
  }
  return index;
}

absl::Status GatherPackedRows(const TensorView& table, const TensorView& indices, Tensor& out) {
  const int64_t width = table.dims[1];
  ASSIGN_OR_RETURN(const size_t row_bytes, RowBytes(table.dtype, width));
  std::vector<float> row(width);
  for (int64_t i = 0; i < indices.count(); ++i) {
    ASSIGN_OR_RETURN(const int64_t index, IndexAt(indices, i, table.dims[0]));
    DecodeRow(table.dtype, table.bytes.data() + index * row_bytes, width, row.data());
    for (int64_t j = 0; j < width; ++j) {
      StoreElement<float>(DType::kF32, out.bytes.data(), i * width + j, row[j]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Reshape(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  out.bytes.assign(x.bytes.begin(), x.bytes.end());
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Transpose(OpCall& call) {
  const TensorView x = call.In(0);
  const absl::Span<const int64_t> perm = call.attrs().Ints("perm");
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  CopyElements(x, out, [&](int64_t i) {
    const std::vector<int64_t> at = Coordinates(out.dims, i);
    std::vector<int64_t> from(at.size());
    for (size_t d = 0; d < at.size(); ++d) from[perm[d]] = at[d];
    return FlatIndex(x.dims, from);
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status BroadcastTo(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  CopyElements(x, out, [&](int64_t i) { return BroadcastIndex(out.dims, x.dims, i); });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Slice(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(const std::vector<int64_t> starts,
                   EvaluateAll(call.attrs().Dims("starts"), call.bindings));
  const absl::Span<const int64_t> steps = call.attrs().Ints("steps");
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  CopyElements(x, out, [&](int64_t i) {
    std::vector<int64_t> at = Coordinates(out.dims, i);
    for (size_t d = 0; d < at.size(); ++d) {
      at[d] = starts[d] + at[d] * (steps.empty() ? 1 : steps[d]);
    }
    return FlatIndex(x.dims, at);
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Concat(OpCall& call) {
  const int64_t axis = call.attrs().Int("axis");
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const size_t size = Info(out.dtype).bytes;
  int64_t start = 0;  // of the current input along axis
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const TensorView x = call.In(k);
    for (int64_t i = 0; i < x.count(); ++i) {
      std::vector<int64_t> at = Coordinates(x.dims, i);
      at[axis] += start;
      std::memcpy(&out.bytes[FlatIndex(out.dims, at) * size], &x.bytes[i * size], size);
    }
    start += x.dims[axis];
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Gather(OpCall& call) {
  const TensorView data = call.In(0);
  const TensorView indices = call.In(1);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  if (IsBlock(data.dtype)) {
    RETURN_IF_ERROR(GatherPackedRows(data, indices, out));
    call.outputs[0] = std::move(out);
    return absl::OkStatus();
  }
  const int64_t axis = call.attrs().Int("axis");
  const size_t size = Info(data.dtype).bytes;
  // The result is [before, indices, after] with before = data[:axis], after = data[axis+1:].
  const std::vector<int64_t> after_dims(data.dims.begin() + axis + 1, data.dims.end());
  int64_t after = 1;
  for (int64_t dim : after_dims) after *= dim;
  const int64_t index_count = indices.count();
  const int64_t count = out.count();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t inner = i % after;
    const int64_t which = i / after % index_count;
    const int64_t outer = i / after / index_count;
    ASSIGN_OR_RETURN(const int64_t index, IndexAt(indices, which, data.dims[axis]));
    const int64_t source = (outer * data.dims[axis] + index) * after + inner;
    std::memcpy(&out.bytes[i * size], &data.bytes[source * size], size);
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Iota(OpCall& call) {
  const int64_t axis = call.attrs().Int("axis");
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  WithComputeType(out.dtype, [&](auto tag) {
    using C = decltype(tag);
    for (int64_t i = 0; i < out.count(); ++i) {
      const int64_t at = Coordinates(out.dims, i)[axis];
      StoreElement<C>(out.dtype, out.bytes.data(), i, ConvertElement<C>(at));
    }
  });
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status Pad(OpCall& call) {
  const TensorView x = call.In(0);
  const absl::Span<const int64_t> lo = call.attrs().Ints("lo");
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const size_t size = Info(out.dtype).bytes;
  WithComputeType(out.dtype, [&](auto tag) {
    using C = decltype(tag);
    const C fill = ConvertElement<C>(call.attrs().Float("value"));
    for (int64_t i = 0; i < out.count(); ++i) StoreElement<C>(out.dtype, out.bytes.data(), i, fill);
  });
  for (int64_t i = 0; i < x.count(); ++i) {
    std::vector<int64_t> at = Coordinates(x.dims, i);
    for (size_t d = 0; d < at.size(); ++d) at[d] += lo[d];
    std::memcpy(&out.bytes[FlatIndex(out.dims, at) * size], &x.bytes[i * size], size);
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

}  // namespace cuvil::ir::interp
