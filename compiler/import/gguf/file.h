// A GGUF file (versions 2 and 3, little-endian): typed metadata and a table of tensors over a map
// of the file. Immutable after Open or Parse; any thread may read; share it by shared_ptr. Names,
// strings and tensor data are views into the map and live as long as the File.
//
// The file is treated as hostile: every count, length and offset is checked before use, and what a
// File allocates is bounded by a small multiple of the file's size. After a successful Parse: keys
// and tensor names are unique, every tensor's bytes lie inside the file, none overlap, each offset
// is aligned, each row is a whole number of blocks, and no dimension is zero.
//
// Every error is InvalidArgument (NotFound for a missing key or tensor): one sentence.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"
#include "compiler/import/gguf/value.h"

namespace cuvil::gguf {

// The largest public models stay under 2,000 tensors and 200 keys.
inline constexpr uint64_t kMaxTensors = 65536;
inline constexpr uint64_t kMaxKeys = 65536;
inline constexpr uint64_t kMaxKeyBytes = 65535;      // the format's own limit
inline constexpr uint64_t kMaxTensorNameBytes = 64;  // the format's own limit
inline constexpr int kMaxRank = 4;                   // the format's own limit
inline constexpr uint64_t kDefaultAlignment = 32;    // when general.alignment is absent

struct Tensor {
  std::string_view name;
  DType dtype = DType::kF32;
  int rank = 0;                             // 1 to kMaxRank
  std::array<int64_t, kMaxRank> dims = {};  // innermost first, as stored; the rest are 1
  int64_t elements = 0;
  uint64_t offset = 0;             // of the data, from the start of the file
  absl::Span<const uint8_t> data;  // packed rows of dims[0] elements, no gaps

  int64_t rows() const { return elements / dims[0]; }
  // Outermost first: a matrix is {rows, columns}.
  std::vector<int64_t> shape() const { return {dims.rend() - rank, dims.rend()}; }
};

// "f16 [2, 576]", shape outermost first.
std::string Describe(const Tensor& tensor);

class File {
 public:
  static absl::StatusOr<std::shared_ptr<const File>> Open(const std::string& path);
  // Reads `bytes`, which `owner` keeps alive. `name` stands for the path in errors.
  static absl::StatusOr<std::shared_ptr<const File>> Parse(std::shared_ptr<const void> owner,
                                                           absl::Span<const uint8_t> bytes,
                                                           std::string name);
  // The same over a copy that the File owns.
  static absl::StatusOr<std::shared_ptr<const File>> Parse(std::string bytes);

  const std::string& name() const { return name_; }
  // The map behind the views, to release pages that are no longer needed; null after Parse.
  const MappedFile* mapped() const { return mapped_.get(); }
  absl::Span<const uint8_t> bytes() const { return bytes_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

  // Keys in file order.
  size_t key_count() const { return entries_.size(); }
  std::string_view key(size_t i) const { return entries_[i].key; }
  const Value& value(size_t i) const { return entries_[i].value; }
  const Value* Find(std::string_view key) const;  // null when absent
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Typed reads. Int takes every integer type whose value fits; Float takes f32 and f64.
  absl::StatusOr<int64_t> Int(std::string_view key) const;
  absl::StatusOr<double> Float(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Ints(std::string_view key) const;
  absl::StatusOr<std::vector<double>> Floats(std::string_view key) const;
  absl::StatusOr<std::vector<bool>> Bools(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> Strings(std::string_view key) const;
  // `fallback` when the key is absent; still an error when it is present with another type.
  absl::StatusOr<int64_t> IntOr(std::string_view key, int64_t fallback) const;
  absl::StatusOr<double> FloatOr(std::string_view key, double fallback) const;
  absl::StatusOr<bool> BoolOr(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string_view> StringOr(std::string_view key, std::string_view fallback) const;

  // Tensors in file order.
  absl::Span<const Tensor> tensors() const { return tensors_; }
  const Tensor* FindTensor(std::string_view name) const;  // null when absent

 private:
  struct Entry {
    std::string_view key;
    Value value;
  };

  File() = default;
  absl::Status ReadAll();
  absl::Status ReadEntries(Cursor& cursor, uint64_t count);
  absl::Status ReadAlignment();
  absl::Status ReadTensors(Cursor& cursor, uint64_t count);
  absl::Status PlaceTensors(uint64_t data_start);
  absl::Status IndexTensors();
  absl::StatusOr<const Value*> Require(std::string_view key) const;
  absl::Status WrongType(std::string_view key, std::string_view wanted) const;

  std::string name_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const MappedFile> mapped_;
  absl::Span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<Entry> entries_;
  std::vector<uint32_t> by_key_;  // positions in entries_, sorted by key
  std::vector<Tensor> tensors_;
  std::vector<uint32_t> by_name_;  // positions in tensors_, sorted by name
};

}  // namespace cuvil::gguf
