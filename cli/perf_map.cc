#include "cli/perf_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace cuvil::cli {

absl::Status WritePerfMap(const driver::Compiled& compiled) {
  std::string text;
  for (const auto& [symbol, object] : compiled.objects) {
    const auto address = reinterpret_cast<uintptr_t>(compiled.code->Function(symbol));
    absl::StrAppendFormat(&text, "%x %x cuvil:%s\n", address, compiled.code->FunctionBytes(symbol),
                          symbol);
  }
  const std::string path = absl::StrCat("/tmp/perf-", getpid(), ".map");
  // The first map of this process replaces what an earlier one of the same number left; a second
  // model (eval --compare) adds to it.
  static bool started = false;
  if (!started) unlink(path.c_str());
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (started ? 0 : O_EXCL);
  started = true;
  const int fd = open(path.c_str(), flags, 0600);
  const bool ok =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (ok) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write '", path, "': ", std::strerror(error)));
}

}  // namespace cuvil::cli
