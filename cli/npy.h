// Writes a float32 matrix as a NumPy .npy file (format version 1.0), row by row.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "cli/output.h"

namespace cuvil::cli {

class NpyWriter {
 public:
  static absl::StatusOr<NpyWriter> Create(const std::string& path, int64_t rows, int64_t columns);
  // REQUIRES: `columns` values.
  absl::Status Row(absl::Span<const float> values);
  // The file appears under its name. REQUIRES: all rows were written.
  absl::Status Commit();

 private:
  NpyWriter(OutputFile file, int64_t rows, int64_t columns)
      : file_(std::move(file)), rows_left_(rows), columns_(columns) {}
  OutputFile file_;
  int64_t rows_left_, columns_;
};

}  // namespace cuvil::cli
