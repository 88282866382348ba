#include "cli/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace cuvil::cli {
namespace {

absl::Status WriteFailed(std::string_view what, int error) {
  if (error == EPIPE) return absl::CancelledError("the reader closed the pipe");
  const char* fix = "; check where the output goes";
  if (error == ENOSPC || error == EDQUOT) fix = "; free some space or write elsewhere";
  if (error == EFBIG) fix = "; raise the limit on file sizes (ulimit -f)";
  return absl::InternalError(
      absl::StrCat("cannot write ", Sv(what), ": ", std::strerror(error), fix));
}

absl::Status WriteAll(int fd, const char* data, size_t size, std::string_view what) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteFailed(what, errno);
    data += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

std::string DescriptorPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// A file without a name in the folder of `path`: however the program ends, nothing of it stays.
// Negative where the file system or /proc does not offer that.
int OpenNameless(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0 || access(DescriptorPath(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
  return -1;
}

bool Link(int fd, const std::string& path) {
  const std::string from = DescriptorPath(fd);
  return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

// Puts the nameless file at `path`, in place of what is there. False: errno says why not.
bool GiveName(int fd, const std::string& path) {
  if (Link(fd, path)) return true;
  if (errno != EEXIST) return false;
  // A link replaces nothing but a rename does, and needs a name to start from.
  constexpr int kNamesTried = 100;  // taken ones are leftovers of killed programs with our number
  for (int i = 0; i < kNamesTried; ++i) {
    const std::string temporary = absl::StrCat(path, ".tmp.", getpid(), ".", i);
    if (!Link(fd, temporary)) {
      if (errno == EEXIST) continue;
      return false;
    }
    if (rename(temporary.c_str(), path.c_str()) == 0) return true;
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    return false;
  }
  return false;
}

}  // namespace

absl::Status WriteOut(std::string_view text) {
  return WriteAll(STDOUT_FILENO, text.data(), text.size(), "standard output");
}

absl::Status WriteJsonOut(const Json& json) { return WriteOut(WriteJson(json) + "\n"); }

double Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      nameless_(other.nameless_),
      fd_(std::exchange(other.fd_, -1)) {
  other.temporary_.clear();
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  OutputFile file;
  file.path_ = path;
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    file.fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else if (file.fd_ = OpenNameless(path); file.fd_ >= 0) {
    file.nameless_ = true;
  } else {
    file.temporary_ = path + ".tmp.XXXXXX";
    file.fd_ = mkostemp(file.temporary_.data(), O_CLOEXEC);
  }
  if (file.fd_ >= 0) return file;
  const int error = errno;
  file.temporary_.clear();  // nothing was made
  return WriteFailed(absl::StrCat("'", path, "'"), error);
}

absl::Status OutputFile::Write(absl::Span<const uint8_t> bytes) {
  return WriteAll(fd_, reinterpret_cast<const char*>(bytes.data()), bytes.size(),
                  absl::StrCat("'", path_, "'"));
}

absl::Status OutputFile::Commit() {
  const std::string what = absl::StrCat("'", path_, "'");
  if (nameless_) {
    if (fsync(fd_) != 0 || !GiveName(fd_, path_)) return WriteFailed(what, errno);
    return close(std::exchange(fd_, -1)) == 0 ? absl::OkStatus() : WriteFailed(what, errno);
  }
  if (!temporary_.empty()) {
    // 0600 from mkostemp becomes what a plainly created file would have.
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd_, 0666 & ~mask) != 0 || fsync(fd_) != 0) return WriteFailed(what, errno);
  }
  if (close(std::exchange(fd_, -1)) != 0) return WriteFailed(what, errno);
  if (temporary_.empty()) return absl::OkStatus();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return WriteFailed(what, errno);
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace cuvil::cli
