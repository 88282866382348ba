#include "cli/npy.h"

#include <utility>

namespace cuvil::cli {
namespace {

// Magic, version, length of the dictionary, the dictionary padded with spaces so that the data
// starts at a multiple of 64 bytes.
std::string Header(int64_t rows, int64_t columns) {
  constexpr size_t kBeforeDictionary = 10, kAlignment = 64;
  std::string text = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ",
                                  columns, "), }");
  while ((kBeforeDictionary + text.size() + 1) % kAlignment != 0) text.push_back(' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(text.size() & 0xff));
  header.push_back(static_cast<char>(text.size() >> 8));
  return header + text;
}

absl::Span<const uint8_t> Bytes(const void* data, size_t size) {
  return {static_cast<const uint8_t*>(data), size};
}

}  // namespace

absl::StatusOr<NpyWriter> NpyWriter::Create(const std::string& path, int64_t rows,
                                            int64_t columns) {
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  const std::string header = Header(rows, columns);
  RETURN_IF_ERROR(file.Write(Bytes(header.data(), header.size())));
  return NpyWriter(std::move(file), rows, columns);
}

absl::Status NpyWriter::Row(absl::Span<const float> values) {
  CUVIL_CHECK(static_cast<int64_t>(values.size()) == columns_ && rows_left_ > 0,
              "the matrix has the shape its header says");
  --rows_left_;
  return file_.Write(Bytes(values.data(), values.size() * sizeof(float)));
}

absl::Status NpyWriter::Commit() {
  CUVIL_CHECK(rows_left_ == 0, "the matrix has the shape its header says");
  return file_.Commit();
}

}  // namespace cuvil::cli
