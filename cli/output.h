// Where results go. Standard output is written unbuffered, so that a full disk or a closed pipe is
// an error of the write that met it; commands build a whole document first and write it once, so
// that a failure leaves nothing half printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "base/json.h"
#include "base/status.h"

namespace cuvil::cli {

// Cancelled when the reader closed the pipe; otherwise a failure of the work.
absl::Status WriteOut(std::string_view text);

// One JSON document and a line break.
absl::Status WriteJsonOut(const Json& json);

// Seconds or rates with six significant digits: more would be noise, and diffs of it.
double Rounded(double value);

// A file that is written piece by piece and appears under its name only once it is complete. A path
// that exists and is no regular file (a device, a pipe) is written to directly. One thread.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // without Commit: removes what was written

  absl::Status Write(absl::Span<const uint8_t> bytes);
  absl::Status Commit();

 private:
  OutputFile() = default;
  // temporary_ is empty when the file has no name yet, or when path_ itself is open.
  std::string path_, temporary_;
  bool nameless_ = false;
  int fd_ = -1;
};

}  // namespace cuvil::cli
