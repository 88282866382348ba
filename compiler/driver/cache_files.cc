#include "compiler/driver/cache_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace cuvil::driver {
namespace {

// The cache itself nests once; deeper trees are somebody else's and stay.
constexpr int kRemoveDepthMax = 4;

void RemoveTree(int dir, const std::string& name, int depth) {
  if (unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (depth == kRemoveDepthMax) return;
  if (const absl::StatusOr<Fd> inner = OpenDirAt(dir, name); inner.ok()) {
    if (const auto names = NamesIn(inner->get()); names.ok()) {
      for (const std::string& child : *names) RemoveTree(inner->get(), child, depth + 1);
    }
  }
  unlinkat(dir, name.c_str(), AT_REMOVEDIR);
}

absl::Status WriteAll(int fd, const std::string& name, absl::Span<const uint8_t> data) {
  size_t written = 0;
  while (written < data.size()) {
    const ssize_t n = write(fd, data.data() + written, data.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus("cannot write", name);
    written += static_cast<size_t>(n);
  }
  if (fsync(fd) != 0) return ErrnoStatus("cannot flush", name);
  return absl::OkStatus();
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ErrnoStatus(absl::string_view doing, absl::string_view name) {
  const int err = errno;
  const std::string what = absl::StrCat(doing, " '", name, "' in the cache: ", std::strerror(err));
  switch (err) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(absl::StrCat(what, "; free some space"));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(absl::StrCat(what, "; check its permissions"));
    case ENOENT:
      return absl::NotFoundError(what);
    default:
      return absl::UnavailableError(what);
  }
}

absl::StatusOr<Fd> OpenDirAt(int parent, const std::string& name) {
  Fd fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.ok()) return ErrnoStatus("cannot open directory", name);
  return fd;
}

absl::StatusOr<std::vector<uint8_t>> ReadFileAt(int dir, const std::string& name, int64_t bytes,
                                                int64_t bytes_max) {
  // O_NONBLOCK: a FIFO in place of the file must not hang us.
  const Fd fd(openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.ok()) {
    const int err = errno;
    const absl::Status status = ErrnoStatus("cannot open", name);
    const bool damaged = err == ENOENT || err == ELOOP || err == ENXIO || err == EACCES;
    return damaged ? absl::DataLossError(status.message()) : status;
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus("cannot stat", name);
  const bool right = bytes < 0 ? info.st_size <= bytes_max : info.st_size == bytes;
  if (!S_ISREG(info.st_mode) || !right) {
    return absl::DataLossError(absl::StrCat("'", name, "' has ", info.st_size, " bytes"));
  }
  std::vector<uint8_t> data(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = read(fd.get(), data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus("cannot read", name);
    if (n == 0) return absl::DataLossError(absl::StrCat("'", name, "' became shorter"));
    done += static_cast<size_t>(n);
  }
  return data;
}

absl::Status WriteFileAt(int dir, const std::string& name, absl::Span<const uint8_t> data) {
  const Fd fd(
      openat(dir, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.ok()) return ErrnoStatus("cannot create", name);
  return WriteAll(fd.get(), name, data);
}

absl::StatusOr<std::vector<std::string>> NamesIn(int dir) {
  const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy < 0 ? nullptr : fdopendir(copy);
  if (stream == nullptr) {
    const absl::Status status = ErrnoStatus("cannot list", ".");
    if (copy >= 0) close(copy);
    return status;
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

void RemoveTreeAt(int dir, const std::string& name) { RemoveTree(dir, name, 0); }

}  // namespace cuvil::driver
