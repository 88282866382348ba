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
  const char* fix = error == ENOSPC || error == EDQUOT ? "; free some space or write elsewhere"
                                                       : "; check where the output goes";
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
