// File operations of the artifact cache, all relative to an open directory and never through a
// symbolic link. Plain functions over file descriptors, any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace cuvil::driver {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// "doing what 'name': reason; fix" from errno: ResourceExhausted for a full disk, PermissionDenied,
// NotFound, else Unavailable.
absl::Status ErrnoStatus(absl::string_view doing, absl::string_view name);

// Opens a directory without following a link at its last component.
absl::StatusOr<Fd> OpenDirAt(int parent, const std::string& name);

// Reads a regular file of exactly `bytes` (or at most bytes_max when bytes < 0). DataLoss when it
// is missing, no regular file or of another size.
absl::StatusOr<std::vector<uint8_t>> ReadFileAt(int dir, const std::string& name, int64_t bytes,
                                                int64_t bytes_max);

// Creates a new file of mode 0600, writes and fsyncs it.
absl::Status WriteFileAt(int dir, const std::string& name, absl::Span<const uint8_t> data);

// The names in a directory without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> NamesIn(int dir);

// Removes a file, link or directory with everything in it, as far as it goes.
void RemoveTreeAt(int dir, const std::string& name);

}  // namespace cuvil::driver
