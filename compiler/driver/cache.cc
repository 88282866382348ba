#include "compiler/driver/cache.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "compiler/driver/cache_entry.h"

namespace cuvil::driver {
namespace {

constexpr char kEntries[] = "v1";
constexpr char kTemporary[] = ".tmp-", kDropped[] = ".drop-";
// A writer needs seconds; an hour later it is dead.
constexpr int64_t kStaleNs = int64_t{3600} * 1'000'000'000;
// The manifest and its digest, per object and fixed: only for the limit check.
constexpr int64_t kManifestBytes = 4096;

bool IsKey(std::string_view key) {
  return key.size() == 64 && std::all_of(key.begin(), key.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

absl::Status CheckKey(std::string_view key) {
  if (IsKey(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", Sv(key), "' is no cache key; keys are 64 lower-case hex digits"));
}

// Unique among the processes of this machine; O_EXCL and mkdir catch the rest.
std::string UniqueName(const char* prefix) {
  static std::atomic<uint64_t> counter{0};
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return absl::StrCat(prefix, getpid(), "-", now.tv_nsec, "-", counter.fetch_add(1));
}

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

absl::Status Unusable(const std::string& dir, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cache directory '", dir, "' ", why, "; running without a cache"));
}

// Only the owner, and the owner is us.
absl::Status CheckPrivate(int fd, const std::string& dir) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Unusable(dir, std::strerror(errno));
  if (info.st_uid != geteuid()) {
    return Unusable(dir, absl::StrCat("belongs to user ", info.st_uid, ", not to ", geteuid()));
  }
  if ((info.st_mode & 077) != 0) {
    return Unusable(
        dir, absl::StrFormat("has mode %04o, 'chmod 700' makes it usable", info.st_mode & 07777));
  }
  return absl::OkStatus();
}

// mkdir -p; what exists is left for the caller's open to judge.
void MakeDirectories(const std::string& dir) {
  for (size_t at = dir.find('/', 1); at != std::string::npos; at = dir.find('/', at + 1)) {
    mkdir(dir.substr(0, at).c_str(), 0700);
  }
  mkdir(dir.c_str(), 0700);
}

int64_t BytesIn(int entries, const std::string& name) {
  int64_t bytes = 0;
  const absl::StatusOr<Fd> dir = OpenDirAt(entries, name);
  if (!dir.ok()) return 0;
  const auto names = NamesIn(dir->get());
  if (!names.ok()) return 0;
  for (const std::string& file : *names) {
    struct stat info;
    if (fstatat(dir->get(), file.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) bytes += info.st_size;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArtifactCache>> ArtifactCache::Open(const std::string& dir_name,
                                                                   CacheLimits limits) {
  std::string dir = dir_name;
  // With a slash at the end the kernel would follow a link.
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  MakeDirectories(dir);
  const Fd root(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root.ok()) {
    const bool link = errno == ELOOP || errno == ENOTDIR;
    return Unusable(dir, link ? "is a link or no directory"
                              : absl::StrCat("cannot be opened (", std::strerror(errno), ")"));
  }
  RETURN_IF_ERROR(CheckPrivate(root.get(), dir));
  if (mkdirat(root.get(), kEntries, 0700) != 0 && errno != EEXIST) {
    return Unusable(dir, absl::StrCat("cannot be written (", std::strerror(errno), ")"));
  }
  const std::string entries_name = absl::StrCat(dir, "/", kEntries);
  absl::StatusOr<Fd> entries = OpenDirAt(root.get(), kEntries);
  if (!entries.ok()) return Unusable(entries_name, "is a link or no directory");
  RETURN_IF_ERROR(CheckPrivate(entries->get(), entries_name));
  return std::unique_ptr<ArtifactCache>(new ArtifactCache(*std::move(entries), limits));
}

absl::StatusOr<std::optional<Artifact>> ArtifactCache::Read(std::string_view key_view, bool touch,
                                                            const OnProgram& on_program) {
  RETURN_IF_ERROR(CheckKey(key_view));
  const std::string key(key_view);
  const absl::StatusOr<Fd> dir = OpenDirAt(entries_.get(), key);
  if (absl::IsNotFound(dir.status())) return std::nullopt;
  absl::Status status = dir.status();
  if (status.ok()) {
    absl::Status stopped;
    absl::StatusOr<Artifact> artifact =
        ReadEntry(dir->get(), key, [&](std::string_view program_json) {
          if (on_program) stopped = on_program(program_json);
          return stopped;
        });
    RETURN_IF_ERROR(stopped);  // whatever its code, the entry is not to blame
    if (artifact.ok()) {
      if (touch) futimens(dir->get(), nullptr);  // last use, for Gc
      return std::optional<Artifact>(*std::move(artifact));
    }
    status = artifact.status();
  } else {
    struct stat info;
    const bool there = fstatat(entries_.get(), key.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !S_ISDIR(info.st_mode)) status = absl::DataLossError("it is no directory");
  }
  // Anything else (too many open files, say) is not the entry's fault.
  if (!absl::IsDataLoss(status)) return status;
  Drop(key);
  return absl::DataLossError(absl::StrCat("cache entry ", key.substr(0, 12), " was damaged (",
                                          status.message(), ") and has been removed"));
}

absl::StatusOr<std::optional<Artifact>> ArtifactCache::Load(std::string_view key,
                                                            const OnProgram& on_program) {
  return Read(key, /*touch=*/true, on_program);
}

absl::Status ArtifactCache::Write(const std::string& temporary, std::string_view key,
                                  const Artifact& artifact) {
  if (mkdirat(entries_.get(), temporary.c_str(), 0700) != 0) {
    return ErrnoStatus("cannot create", temporary);
  }
  ASSIGN_OR_RETURN(const Fd dir, OpenDirAt(entries_.get(), temporary));
  return WriteEntry(dir.get(), key, artifact);
}

absl::Status ArtifactCache::Publish(const std::string& temporary, const std::string& key) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (renameat(entries_.get(), temporary.c_str(), entries_.get(), key.c_str()) == 0) {
      fsync(entries_.get());
      return absl::OkStatus();
    }
    if (errno == ENOTEMPTY || errno == EEXIST) {
      // Somebody was faster with the same content: theirs stays.
      RemoveTreeAt(entries_.get(), temporary);
      return absl::OkStatus();
    }
    if (errno != ENOTDIR) break;
    Drop(key);  // a file or link in the entry's place
  }
  return ErrnoStatus("cannot publish", key);
}

absl::Status ArtifactCache::Store(std::string_view key_view, const Artifact& artifact) {
  RETURN_IF_ERROR(CheckKey(key_view));
  const std::string key(key_view);
  const int64_t bytes = ArtifactBytes(artifact) + kManifestBytes;
  if (bytes > limits_.bytes_max || limits_.entries_max < 1) {
    return absl::ResourceExhaustedError(absl::StrCat("an artifact of ", bytes,
                                                     " bytes is over the cache's limit of ",
                                                     limits_.bytes_max, "; it is not kept"));
  }
  struct stat info;
  if (fstatat(entries_.get(), key.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  const std::string temporary = UniqueName(kTemporary);
  absl::Status status = Write(temporary, key, artifact);
  if (status.ok()) status = Publish(temporary, key);
  if (!status.ok()) {
    RemoveTreeAt(entries_.get(), temporary);
    return status;
  }
  return Gc().status();
}

// Renames first: a reader sees the whole entry or none.
void ArtifactCache::Drop(const std::string& name) {
  const std::string dropped = UniqueName(kDropped);
  const int renamed = renameat(entries_.get(), name.c_str(), entries_.get(), dropped.c_str());
  RemoveTreeAt(entries_.get(), renamed == 0 ? dropped : name);
}

absl::StatusOr<std::vector<CacheEntry>> ArtifactCache::List() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(entries_.get()));
  std::vector<CacheEntry> entries;
  for (const std::string& name : names) {
    struct stat info;
    if (!IsKey(name) || fstatat(entries_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    entries.push_back({name, BytesIn(entries_.get(), name), Nanoseconds(info.st_mtim)});
  }
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return std::tie(a.used_ns, a.key) < std::tie(b.used_ns, b.key);
  });
  return entries;
}

absl::StatusOr<VerifyReport> ArtifactCache::Verify() {
  ASSIGN_OR_RETURN(const std::vector<CacheEntry> entries, List());
  VerifyReport report;
  for (const CacheEntry& entry : entries) {
    const auto read = Read(entry.key, /*touch=*/false);
    if (absl::IsDataLoss(read.status())) {
      report.dropped.emplace_back(read.status().message());
    } else if (!read.ok()) {
      return read.status();
    } else if (read->has_value()) {
      ++report.good;
    }
  }
  return report;
}

absl::StatusOr<GcReport> ArtifactCache::Gc() {
  GcReport report;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(entries_.get()));
  for (const std::string& name : names) {
    struct stat info;
    const bool temporary = name.rfind(kTemporary, 0) == 0;
    if (!temporary && name.rfind(kDropped, 0) != 0) continue;
    if (fstatat(entries_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (temporary && NowNs() - Nanoseconds(info.st_mtim) < kStaleNs) continue;
    RemoveTreeAt(entries_.get(), name);
    ++report.stale;
  }
  ASSIGN_OR_RETURN(const std::vector<CacheEntry> entries, List());
  int64_t bytes = 0, count = static_cast<int64_t>(entries.size());
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  for (const CacheEntry& entry : entries) {
    if (bytes <= limits_.bytes_max && count <= limits_.entries_max) break;
    Drop(entry.key);
    bytes -= entry.bytes;
    --count;
    ++report.entries;
    report.bytes += entry.bytes;
  }
  return report;
}

absl::StatusOr<std::string> ArtifactCache::Explain(std::string_view key_a, std::string_view key_b) {
  Json components[2];
  const std::string_view keys[2] = {key_a, key_b};
  for (int i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(const std::optional<Artifact> artifact, Read(keys[i], /*touch=*/false));
    if (!artifact) {
      return absl::NotFoundError(absl::StrCat("key ", Sv(keys[i]),
                                              " is not in the cache; "
                                              "'cuvil cache ls' lists the keys that are"));
    }
    components[i] = artifact->key_components;
  }
  return ExplainKey(components[0], components[1]);
}

std::string ExplainKey(const Json& a, const Json& b) {
  if (a == b || !a.is_object() || !b.is_object()) {
    return a == b ? "all key components are equal" : "the key components are not comparable";
  }
  for (const auto& [name, value] : a.items()) {
    const auto other = b.find(name);
    if (other == b.end()) return absl::StrCat("'", name, "' is a component of the first key only");
    if (*other != value) {
      return absl::StrCat("'", name, "' differs: ", WriteJson(value), " against ",
                          WriteJson(*other));
    }
  }
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name))
      return absl::StrCat("'", name, "' is a component of the second key only");
  }
  return "the key components are in another order";
}

}  // namespace cuvil::driver
