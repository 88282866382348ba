#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace cuvil {
namespace {

absl::Status ErrnoStatus(const std::string& what, const std::string& path) {
  const int err = errno;
  const std::string message = absl::StrCat(what, " '", path, "': ", std::strerror(err));
  if (err == ENOENT) return absl::NotFoundError(absl::StrCat(message, "; check the path"));
  if (err == EACCES || err == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat(message, "; check its permissions"));
  }
  if (err == ENOSPC || err == EDQUOT) {
    return absl::ResourceExhaustedError(absl::StrCat(message, "; free some space"));
  }
  if (err == EISDIR || err == ENOTDIR || err == ENAMETOOLONG || err == ELOOP) {
    return absl::InvalidArgumentError(absl::StrCat(message, "; give the path of a file"));
  }
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not hang; it has no effect on regular files.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus("cannot open", path);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const absl::Status status = ErrnoStatus("cannot stat", path);
    close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' is ", S_ISDIR(info.st_mode) ? "a directory" : "not a regular file",
        "; give the path of a model file"));
  }
  if (info.st_size == 0) {
    close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is empty (0 bytes); fetch it again"));
  }
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  const absl::Status failed =
      data == MAP_FAILED ? ErrnoStatus("cannot map", path) : absl::OkStatus();
  close(fd);
  RETURN_IF_ERROR(failed);
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  file->data_ = static_cast<uint8_t*>(data);
  file->size_ = info.st_size;
  file->device_ = info.st_dev;
  file->inode_ = info.st_ino;
  file->mtime_ns_ = info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec;
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

std::string MappedFile::Identity() const {
  return absl::StrCat(device_, ":", inode_, ":", size_, ":", mtime_ns_);
}

void MappedFile::Release(size_t offset, size_t length) const {
  const size_t page = 4096;
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + length, size_) / page * page;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("cannot open", path);
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const absl::Status status = ErrnoStatus("cannot read", path);
      close(fd);
      return status;
    }
    if (n == 0) break;
    if (out.size() + static_cast<size_t>(n) > limit) {
      close(fd);
      return absl::InvalidArgumentError(
          absl::StrCat("'", path, "' is larger than the limit of ", limit, " bytes"));
    }
    out.append(buffer, n);
  }
  close(fd);
  return out;
}

absl::Status CheckReplaceable(const std::string& path) {
  struct stat st;
  if (lstat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' is there and is no regular file; name another, or one that does not exist"));
}

absl::Status WriteFileAtomic(const std::string& path, absl::Span<const uint8_t> bytes) {
  RETURN_IF_ERROR(CheckReplaceable(path));
  std::string temporary = path + ".tmp.XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("cannot create a file beside", path);
  size_t written = 0;
  absl::Status status;
  while (status.ok() && written < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) status = ErrnoStatus("cannot write", temporary);
    if (n > 0) written += n;
  }
  if (status.ok() && fsync(fd) != 0) status = ErrnoStatus("cannot flush", temporary);
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus("cannot close", temporary);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus("cannot rename to", path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace cuvil
