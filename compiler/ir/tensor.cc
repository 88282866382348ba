#include "compiler/ir/tensor.h"

#include "absl/strings/str_cat.h"
#include "compiler/ir/type.h"

namespace cuvil::ir::interp {
namespace {

template <typename T>
Tensor Make(DType dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
  Tensor tensor{dtype, std::move(dims), {}};
  CUVIL_CHECK(tensor.count() == static_cast<int64_t>(values.size()), "one value per element");
  tensor.bytes.resize(values.size() * Info(dtype).bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement<T>(dtype, tensor.bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return tensor;
}

}  // namespace

int64_t TensorView::count() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

absl::StatusOr<Tensor> Tensor::Zeros(DType dtype, std::vector<int64_t> dims) {
  ASSIGN_OR_RETURN(const int64_t size, ByteSize(dtype, dims));
  if (size > kTensorBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a tensor of ", size, " bytes is over the interpreter's limit of ", kTensorBytesMax));
  }
  return Tensor{dtype, std::move(dims), std::vector<uint8_t>(size)};
}

Tensor Tensor::F32(std::vector<int64_t> dims, const std::vector<float>& values) {
  return Make(DType::kF32, std::move(dims), values);
}

Tensor Tensor::I32(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  return Make(DType::kI32, std::move(dims), values);
}

Tensor Tensor::I64(std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  return Make(DType::kI64, std::move(dims), values);
}

Tensor Tensor::Bool(std::vector<int64_t> dims, const std::vector<bool>& values) {
  return Make(DType::kBool, std::move(dims), values);
}

std::vector<double> Tensor::ToDoubles() const {
  std::vector<double> values(count());
  WithComputeType(dtype, [&](auto tag) {
    using C = decltype(tag);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(LoadElement<C>(dtype, bytes.data(), static_cast<int64_t>(i)));
    }
  });
  return values;
}

}  // namespace cuvil::ir::interp
