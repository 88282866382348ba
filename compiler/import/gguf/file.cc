#include "compiler/import/gguf/file.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/checked.h"
#include "compiler/import/gguf/tensor_table.h"

namespace cuvil::gguf {
namespace {

// The fewest bytes an entry takes: a one-byte key, a type, a one-byte value.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;

// A count may not promise more items than the bytes left could hold, so reserving for it is safe.
absl::Status CheckCount(const char* what, uint64_t count, uint64_t limit, uint64_t least_bytes,
                        const Cursor& cursor) {
  if (count > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file claims ", count, " ", what, "; the limit is ", limit));
  }
  if (count * least_bytes > cursor.remaining()) {  // no overflow: both are below 2^17
    return absl::InvalidArgumentError(absl::StrCat("the file claims ", count, " ", what,
                                                   " but only ", cursor.remaining(),
                                                   " bytes are left; it is cut short or corrupt"));
  }
  return absl::OkStatus();
}

absl::Status ReadHeader(Cursor& cursor, uint32_t* version) {
  absl::Span<const uint8_t> magic;
  RETURN_IF_ERROR(cursor.Take(4, "the magic number", &magic));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file starts with ",
                     Quoted(std::string_view(reinterpret_cast<const char*>(magic.data()), 4)),
                     ", not 'GGUF'; give a GGUF file"));
  }
  RETURN_IF_ERROR(cursor.Read(version, "the version"));
  if (*version != 0 && (*version & 0xffff) == 0) {
    return absl::InvalidArgumentError(
        "the file is big-endian; convert it to little-endian (gguf_convert_endian.py)");
  }
  if (*version != 2 && *version != 3) {
    return absl::InvalidArgumentError(absl::StrCat("the file has GGUF version ", *version,
                                                   "; versions 2 and 3 are supported, so convert "
                                                   "the model again"));
  }
  return absl::OkStatus();
}

// Positions 0..n sorted by name_of(position); an error when two names agree.
template <typename NameOf>
absl::Status SortByName(size_t n, const char* what, NameOf name_of, std::vector<uint32_t>* out) {
  out->resize(n);
  std::iota(out->begin(), out->end(), 0u);
  std::sort(out->begin(), out->end(),
            [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
  for (size_t i = 1; i < n; ++i) {
    if (name_of((*out)[i]) == name_of((*out)[i - 1])) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " ", Quoted(name_of((*out)[i])), " appears twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string Describe(const Tensor& tensor) {
  return absl::StrCat(std::string(Info(tensor.dtype).name), " [",
                      absl::StrJoin(tensor.shape(), ", "), "]");
}

absl::StatusOr<std::shared_ptr<const File>> File::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  std::shared_ptr<File> file(new File());
  file->name_ = path;
  file->bytes_ = mapped->bytes();
  file->mapped_ = std::move(mapped);
  RETURN_IF_ERROR(file->ReadAll());
  return std::shared_ptr<const File>(std::move(file));
}

absl::StatusOr<std::shared_ptr<const File>> File::Parse(std::shared_ptr<const void> owner,
                                                        absl::Span<const uint8_t> bytes,
                                                        std::string name) {
  std::shared_ptr<File> file(new File());
  file->name_ = std::move(name);
  file->owner_ = std::move(owner);
  file->bytes_ = bytes;
  RETURN_IF_ERROR(file->ReadAll());
  return std::shared_ptr<const File>(std::move(file));
}

absl::StatusOr<std::shared_ptr<const File>> File::Parse(std::string bytes) {
  auto owned = std::make_shared<const std::string>(std::move(bytes));
  const absl::Span<const uint8_t> view(reinterpret_cast<const uint8_t*>(owned->data()),
                                       owned->size());
  return Parse(std::move(owned), view, "<memory>");
}

absl::Status File::ReadAll() {
  const absl::Status status = [&]() -> absl::Status {
    Cursor cursor(bytes_);
    uint64_t tensor_count, key_count;
    RETURN_IF_ERROR(ReadHeader(cursor, &version_));
    RETURN_IF_ERROR(cursor.Read(&tensor_count, "the tensor count"));
    RETURN_IF_ERROR(cursor.Read(&key_count, "the metadata count"));
    RETURN_IF_ERROR(ReadEntries(cursor, key_count));
    RETURN_IF_ERROR(ReadAlignment());
    return ReadTensors(cursor, tensor_count);
  }();
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("cannot read ", Quoted(name_), ": ", status.message()));
}

absl::Status File::ReadEntries(Cursor& cursor, uint64_t count) {
  RETURN_IF_ERROR(CheckCount("metadata keys", count, kMaxKeys, kMinEntryBytes, cursor));
  entries_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Entry entry;
    RETURN_IF_ERROR(cursor.ReadString(&entry.key, absl::StrCat("metadata key number ", i)));
    if (entry.key.empty() || entry.key.size() > kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat("metadata key number ", i, " has ",
                                                     entry.key.size(), " bytes; 1 to ",
                                                     kMaxKeyBytes, " are possible"));
    }
    const std::string what = absl::StrCat("metadata ", Quoted(entry.key));
    RETURN_IF_ERROR(ReadValue(cursor, what, &entry.value));
    entries_.push_back(entry);
  }
  return SortByName(
      entries_.size(), "metadata key", [this](uint32_t i) { return entries_[i].key; }, &by_key_);
}

absl::Status File::ReadAlignment() {
  ASSIGN_OR_RETURN(const int64_t alignment, IntOr("general.alignment", kDefaultAlignment));
  if (alignment < 1 || (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("general.alignment is ", alignment, "; it must be a power of two"));
  }
  alignment_ = static_cast<uint64_t>(alignment);
  return absl::OkStatus();
}

absl::Status File::ReadTensors(Cursor& cursor, uint64_t count) {
  RETURN_IF_ERROR(CheckCount("tensors", count, kMaxTensors, kMinTensorBytes, cursor));
  tensors_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Tensor tensor;
    uint64_t bytes;
    RETURN_IF_ERROR(ReadTensorInfo(cursor, i, &tensor, &bytes));
    // The size waits in an unbacked span of the right length only after it is known to fit.
    if (bytes > bytes_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(tensor.name), " (", Describe(tensor), ") takes ", bytes,
          " bytes, more than the file's ", bytes_.size(), "; the file is cut short or corrupt"));
    }
    tensor.data = bytes_.subspan(0, bytes);
    tensors_.push_back(tensor);
  }
  RETURN_IF_ERROR(IndexTensors());
  if (count == 0) return absl::OkStatus();
  uint64_t data_start;
  if (!CheckedAlignUp(cursor.position(), alignment_, &data_start)) {
    return absl::InvalidArgumentError(
        absl::StrCat("general.alignment is ", alignment_, ", too large for this file"));
  }
  return PlaceTensors(data_start);
}

absl::Status File::IndexTensors() {
  return SortByName(
      tensors_.size(), "tensor", [this](uint32_t i) { return tensors_[i].name; }, &by_name_);
}

absl::Status File::PlaceTensors(uint64_t data_start) {
  for (Tensor& tensor : tensors_) {
    if (tensor.offset % alignment_ != 0) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), " has offset ",
                                                     tensor.offset, ", not a multiple of the ",
                                                     "alignment ", alignment_));
    }
    const uint64_t size = tensor.data.size();
    uint64_t end;
    if (!CheckedAdd(tensor.offset, data_start, &tensor.offset) ||
        !CheckedAdd(tensor.offset, size, &end) || end > bytes_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(tensor.name), " (", Describe(tensor), ") ends beyond the file's ",
          bytes_.size(), " bytes; the file is cut short or corrupt"));
    }
    tensor.data = bytes_.subspan(tensor.offset, size);
  }
  std::vector<uint32_t> order(by_name_);
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return tensors_[a].offset < tensors_[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Tensor &before = tensors_[order[i - 1]], &after = tensors_[order[i]];
    if (before.offset + before.data.size() > after.offset) {
      return absl::InvalidArgumentError(absl::StrCat("tensors ", Quoted(before.name), " and ",
                                                     Quoted(after.name), " overlap at byte ",
                                                     after.offset));
    }
  }
  return absl::OkStatus();
}

const Value* File::Find(std::string_view key) const {
  const auto it = std::lower_bound(
      by_key_.begin(), by_key_.end(), key,
      [this](uint32_t i, std::string_view wanted) { return entries_[i].key < wanted; });
  if (it == by_key_.end() || entries_[*it].key != key) return nullptr;
  return &entries_[*it].value;
}

const Tensor* File::FindTensor(std::string_view name) const {
  const auto it = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  if (it == by_name_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

}  // namespace cuvil::gguf
