// Files: a read-only memory map, whole-file reads with a limit, and atomic writes.
// Errors name the path, what went wrong and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"

namespace cuvil {

// A read-only private map of a regular file. Immutable after Open; any thread may read.
class MappedFile {
 public:
  // Fails with InvalidArgument for a directory, a device or an empty file, NotFound for a missing
  // one.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Identity for caches: device, inode, size and modification time.
  std::string Identity() const;
  // Tells the kernel that [offset, offset+length) is no longer needed, so that its pages stop
  // counting towards this process.
  void Release(size_t offset, size_t length) const;

 private:
  MappedFile() = default;
  std::string path_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;
  int64_t mtime_ns_ = 0;
};

// Reads at most `limit` bytes; a longer file is an error.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit);

// Whether a file may take the place of what is at `path`: nothing, or a regular file.
// InvalidArgument for a device, pipe, socket, folder or link, which a rename or a removal would
// destroy.
absl::Status CheckReplaceable(const std::string& path);

// Writes to a temporary name in the same directory, fsyncs and renames; mode 0600. Also the error
// of CheckReplaceable.
absl::Status WriteFileAtomic(const std::string& path, absl::Span<const uint8_t> bytes);

}  // namespace cuvil
