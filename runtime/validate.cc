#include "runtime/validate.h"

#include "base/checked.h"

namespace cuvil::runtime {
namespace {

// 64 TiB: beyond any machine, and far from overflowing sums of offsets.
constexpr int64_t kRegionBytesMax = int64_t{1} << 46;
// Segments are layers or parts of layers.
constexpr int32_t kSegmentsMax = 1 << 16;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the program is malformed: ", what, "; compile it again"));
}

// The rows of all runs, or a number below zero when they are out of range.
int64_t CountRows(const WeightDecl& weight) {
  int64_t total = 0;
  for (const RowRun& run : weight.runs) {
    if (run.row < 0 || run.rows < 0 || run.row > kRegionBytesMax) return -1;
    if (!CheckedAdd(total, run.rows, &total) || total > kRegionBytesMax) return -1;
  }
  return total;
}

absl::Status ValidateWeight(const WeightDecl& weight, const Program& program) {
  const auto bad = [&weight](absl::string_view what) {
    return Bad(absl::StrCat("weight '", weight.name, "' ", what));
  };
  if (weight.segment < 0 || weight.segment >= program.segments) {
    return bad(absl::StrCat("is in segment ", weight.segment, " of ", program.segments));
  }
  if (weight.offset < 0 || weight.offset % 64 != 0 || weight.bytes < 0 ||
      weight.bytes > program.weights_bytes ||
      weight.offset > program.weights_bytes - weight.bytes) {
    return bad(absl::StrCat("of ", weight.bytes, " bytes at ", weight.offset,
                            " leaves the region of ", program.weights_bytes,
                            " bytes or is not 64-byte aligned"));
  }
  const int64_t rows = CountRows(weight);
  if (rows < 0 || weight.k < 1 || weight.k > kRegionBytesMax) {
    return bad(absl::StrCat("has impossible rows or k = ", weight.k));
  }
  int64_t elements;
  if (!CheckedMul(rows, weight.k, &elements) || elements > kRegionBytesMax) {
    return bad(absl::StrCat("of ", rows, " x ", weight.k, " elements is too large"));
  }
  if (weight.prep == Prep::kFloats) {
    if (weight.bytes % 4 != 0 || elements > weight.bytes / 4) {
      return bad(
          absl::StrCat("of ", elements, " floats does not fit its ", weight.bytes, " bytes"));
    }
    return absl::OkStatus();
  }
  if (rows % kStripRows != 0 || weight.k % kBlockK != 0) {
    return bad(absl::StrCat("of ", rows, " x ", weight.k, " does not fill strips of ", kStripRows,
                            " rows and blocks of ", kBlockK));
  }
  const int64_t want = rows / kStripRows * WeightStripBytes(weight.layout, weight.k);
  if (weight.bytes != want) {
    return bad(absl::StrCat("has ", weight.bytes, " bytes, its strips need ", want));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateWeights(const Program& program) {
  if (program.segments < 0 || program.segments > kSegmentsMax) {
    return Bad(absl::StrCat(program.segments, " segments; the limit is ", kSegmentsMax));
  }
  if (program.weights_bytes < 0 || program.weights_bytes > kRegionBytesMax) {
    return Bad(absl::StrCat("a weights region of ", program.weights_bytes, " bytes"));
  }
  for (const WeightDecl& weight : program.weights) {
    RETURN_IF_ERROR(ValidateWeight(weight, program));
  }
  return absl::OkStatus();
}

}  // namespace cuvil::runtime
