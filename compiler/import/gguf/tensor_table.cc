#include "compiler/import/gguf/tensor_table.h"

#include <limits>

#include "base/blocks.h"
#include "base/checked.h"

namespace cuvil::gguf {
namespace {

struct TypeNumber {
  uint32_t number;  // as the file stores it
  DType dtype;
};

constexpr TypeNumber kTypeNumbers[] = {
    {0, DType::kF32},    {1, DType::kF16},  {2, DType::kQ4_0},  {3, DType::kQ4_1},
    {6, DType::kQ5_0},   {7, DType::kQ5_1}, {8, DType::kQ8_0},  {10, DType::kQ2K},
    {11, DType::kQ3K},   {12, DType::kQ4K}, {13, DType::kQ5K},  {14, DType::kQ6K},
    {20, DType::kIq4Nl}, {24, DType::kI8},  {25, DType::kI16},  {26, DType::kI32},
    {27, DType::kI64},   {28, DType::kF64}, {30, DType::kBf16},
};

absl::Status ReadDType(Cursor& cursor, const std::string& what, DType* out) {
  uint32_t number;
  RETURN_IF_ERROR(cursor.Read(&number, what));
  for (const TypeNumber& entry : kTypeNumbers) {
    if (entry.number == number) {
      *out = entry.dtype;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, " has tensor type number ", number,
      ", which is not supported; requantise the model to F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
      "Q2_K to Q6_K or IQ4_NL"));
}

absl::Status ReadDims(Cursor& cursor, const std::string& what, Tensor* out) {
  uint32_t rank;
  RETURN_IF_ERROR(cursor.Read(&rank, what));
  if (rank < 1 || rank > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", rank, " dimensions; 1 to ", kMaxRank, " are possible"));
  }
  out->rank = static_cast<int>(rank);
  out->dims.fill(1);
  out->elements = 1;
  for (int i = 0; i < out->rank; ++i) {
    uint64_t dim;
    RETURN_IF_ERROR(cursor.Read(&dim, what));
    if (dim == 0 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has dimension ", i, " of size ", dim, "; sizes start at 1"));
    }
    out->dims[i] = static_cast<int64_t>(dim);
    if (!CheckedMul<int64_t>(out->elements, out->dims[i], &out->elements)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has more than 2^63 elements; the file is corrupt"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTensorInfo(Cursor& cursor, uint64_t index, Tensor* out, uint64_t* bytes) {
  std::string what = absl::StrCat("tensor number ", index);
  RETURN_IF_ERROR(cursor.ReadString(&out->name, what));
  if (out->name.empty() || out->name.size() > kMaxTensorNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has a name of ", out->name.size(),
                                                   " bytes; 1 to ", kMaxTensorNameBytes,
                                                   " are possible"));
  }
  what = absl::StrCat("tensor ", Quoted(out->name));
  RETURN_IF_ERROR(ReadDims(cursor, what, out));
  RETURN_IF_ERROR(ReadDType(cursor, what, &out->dtype));
  RETURN_IF_ERROR(cursor.Read(&out->offset, what));
  // Rows are whole blocks, so the size of all rows together is the size of one long row.
  const absl::StatusOr<size_t> row = RowBytes(out->dtype, out->dims[0]);
  if (!row.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", row.status().message()));
  }
  ASSIGN_OR_RETURN(*bytes, RowBytes(out->dtype, out->elements));
  return absl::OkStatus();
}

}  // namespace cuvil::gguf
