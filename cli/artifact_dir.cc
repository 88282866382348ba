#include "cli/artifact_dir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/json.h"
#include "compiler/driver/cache_entry.h"
#include "compiler/driver/cache_files.h"

namespace cuvil::cli {
namespace {

using driver::Fd;

constexpr int64_t kManifestBytesMax = 16 << 20;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::Status Failed(const char* doing, const std::string& path) {
  const int error = errno;
  const std::string what = absl::StrCat(doing, " '", path, "': ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(absl::StrCat(what, "; check the path"));
  return absl::InternalError(what);
}

// Opened by path, links followed: the caller named it.
absl::StatusOr<Fd> OpenFolder(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return Failed("cannot open", path);
  return fd;
}

// The key an artifact's manifest gives. Nothing when the folder is no artifact: other programs name
// their files manifest.json too, and what is taken for an artifact may be replaced.
std::optional<std::string> ManifestKey(int folder) {
  if (faccessat(folder, "digest", F_OK, 0) != 0) return std::nullopt;
  const auto bytes = driver::ReadFileAt(folder, "manifest.json", -1, kManifestBytesMax);
  if (!bytes.ok()) return std::nullopt;
  const auto json =
      ParseJson(std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto key = json->find("key"), files = json->find("files");
  if (key == json->end() || !key->is_string() || files == json->end() || !files->is_array())
    return std::nullopt;
  return key->get<std::string>();
}

// Whether `path` may be replaced: it is not there, empty, or an artifact.
absl::StatusOr<bool> Exists(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("-o is empty; give the path of a folder");
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    return Failed("cannot look at", path);
  }
  if (S_ISDIR(info.st_mode)) {
    ASSIGN_OR_RETURN(const Fd folder, OpenFolder(path));
    ASSIGN_OR_RETURN(const std::vector<std::string> names, driver::NamesIn(folder.get()));
    if (names.empty() || ManifestKey(folder.get()).has_value()) return true;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("'", path, "' exists and is no artifact; remove it or choose another -o"));
}

absl::Status WriteTexts(int parent, const char* name, const char* suffix,
                        const std::vector<std::string>& texts) {
  if (texts.empty()) return absl::OkStatus();
  if (mkdirat(parent, name, 0700) != 0) return Failed("cannot make", name);
  ASSIGN_OR_RETURN(const Fd folder, driver::OpenDirAt(parent, name));
  for (size_t i = 0; i < texts.size(); ++i) {
    RETURN_IF_ERROR(
        driver::WriteFileAt(folder.get(), absl::StrFormat("%05d%s", i, suffix), Bytes(texts[i])));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int folder, const ArtifactFolder& f) {
  RETURN_IF_ERROR(driver::WriteEntry(folder, f.key, f.artifact));
  RETURN_IF_ERROR(WriteTexts(folder, "kernels", ".kir", f.kernel_ir));
  RETURN_IF_ERROR(WriteTexts(folder, "llvm", ".ll", f.llvm_ir));
  return driver::WriteFileAt(folder, "times.json", Bytes(WriteJson(Json(f.compile_s))));
}

void RemoveFolder(const std::string& path) { driver::RemoveTreeAt(AT_FDCWD, path); }

// Gives `temporary` the name `path`. What was there leaves in the same step, then is removed.
absl::Status Publish(const std::string& temporary, const std::string& path, bool exists) {
  if (!exists) {
    if (rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
    return Failed("cannot make", path);
  }
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    return Failed("cannot replace", path);
  }
  RemoveFolder(temporary);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArtifactPath(const std::string& path) { return Exists(path).status(); }

absl::Status WriteArtifactFolder(const std::string& path_given, const ArtifactFolder& folder) {
  std::string path = path_given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  ASSIGN_OR_RETURN(const bool exists, Exists(path));
  std::string temporary = path + ".tmp.XXXXXX";
  if (mkdtemp(temporary.data()) == nullptr) return Failed("cannot make a folder beside", path);
  absl::Status status;
  {
    auto fd = OpenFolder(temporary);
    status = fd.ok() ? WriteAll(fd->get(), folder) : fd.status();
    if (!status.ok()) {
      status = absl::InternalError(
          absl::StrCat("cannot write the artifact '", path, "': ", status.message()));
    }
  }
  if (status.ok()) status = Publish(temporary, path, exists);
  if (!status.ok()) RemoveFolder(temporary);
  return status;
}

absl::StatusOr<ArtifactFolder> ReadArtifactFolder(const std::string& path) {
  ASSIGN_OR_RETURN(const Fd folder, OpenFolder(path));
  const std::optional<std::string> key = ManifestKey(folder.get());
  if (!key.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is no artifact; make one with cuvil compile -o DIR"));
  }
  ArtifactFolder result;
  result.key = *key;
  auto artifact = driver::ReadEntry(folder.get(), result.key);
  if (!artifact.ok()) {
    return absl::DataLossError(absl::StrCat("the artifact '", path, "' is damaged: ",
                                            artifact.status().message(), "; compile it again"));
  }
  result.artifact = *std::move(artifact);
  // For people only: missing or odd times are no times.
  const auto times = driver::ReadFileAt(folder.get(), "times.json", -1, kManifestBytesMax);
  if (!times.ok()) return result;
  const auto list =
      ParseJson(std::string_view(reinterpret_cast<const char*>(times->data()), times->size()));
  if (!list.ok() || !list->is_array() || list->size() != result.artifact.objects.size())
    return result;
  for (const Json& seconds : *list)
    result.compile_s.push_back(seconds.is_number() ? seconds.get<double>() : 0);
  return result;
}

}  // namespace cuvil::cli
