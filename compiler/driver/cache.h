// ArtifactCache: compiled programs on disk, addressed by the key of what they were compiled from.
//
//   <dir>/v1/<key>/   manifest.json   digest and size of every file, symbols of the objects
//                     digest          SHA-256 of manifest.json
//                     program.json    key.json    00000.o 00001.o ...
//   <dir>/v1/.tmp-*   entries being written       .drop-*  entries being removed
//
// Code from here becomes executable, so nothing is trusted: the directory must belong to the
// effective user with no access for others, no link is followed, and every byte returned has been
// hashed in the buffer that is returned. A hash is no authentication; the permissions are.
// An entry is complete before its name appears, immutable afterwards, and a damaged one is removed.
// Any thread, any number of processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "compiler/driver/cache_files.h"

namespace cuvil::driver {

struct ObjectFile {
  std::string symbol;
  std::vector<uint8_t> object;
};

struct Artifact {
  std::string program_json;
  std::vector<ObjectFile> objects;
  Json key_components = Json::object();  // named components the key was made from, in order
};

struct CacheLimits {
  int64_t bytes_max = int64_t{1} << 30;  // a program is a few MB: hundreds of them
  int entries_max = 256;
};

struct CacheEntry {
  std::string key;
  int64_t bytes = 0;
  int64_t used_ns = 0;  // last load or store, since the epoch
};

struct VerifyReport {
  int good = 0;
  std::vector<std::string> dropped;  // one sentence each
};

struct GcReport {
  int entries = 0;    // removed
  int64_t bytes = 0;  // removed
  int stale = 0;      // leftovers of writers that died
};

class ArtifactCache {
 public:
  // Opens or creates `dir` (mode 0700). FailedPrecondition, one sentence, when it cannot be used
  // safely: a link, another owner, access for others, not writable. The caller then runs uncached.
  static absl::StatusOr<std::unique_ptr<ArtifactCache>> Open(const std::string& dir,
                                                             CacheLimits limits = {});

  // Told program.json once its digest was right, before the objects are read. An error ends the
  // load with it.
  using OnProgram = std::function<absl::Status(std::string_view program_json)>;

  // The artifact, or nothing on a miss. DataLoss is a miss with a reason: the entry was damaged
  // and has been removed. `key` is 64 lower-case hex digits.
  absl::StatusOr<std::optional<Artifact>> Load(std::string_view key,
                                               const OnProgram& on_program = nullptr);

  // Writes an entry unless the key is there already, then removes old ones over the limits. On an
  // error (ResourceExhausted for a full disk) nothing half-written remains.
  absl::Status Store(std::string_view key, const Artifact& artifact);

  // Least recently used first.
  absl::StatusOr<std::vector<CacheEntry>> List() const;

  // Reads every entry and removes the damaged ones.
  absl::StatusOr<VerifyReport> Verify();

  // Removes least recently used entries over the limits and leftovers older than an hour.
  absl::StatusOr<GcReport> Gc();

  // Why two entries have different keys: ExplainKey of their stored components. NotFound when one
  // of them is missing.
  absl::StatusOr<std::string> Explain(std::string_view key_a, std::string_view key_b);

 private:
  ArtifactCache(Fd entries, CacheLimits limits) : entries_(std::move(entries)), limits_(limits) {}
  absl::StatusOr<std::optional<Artifact>> Read(std::string_view key, bool touch,
                                               const OnProgram& on_program = nullptr);
  absl::Status Write(const std::string& temporary, std::string_view key, const Artifact& artifact);
  absl::Status Publish(const std::string& temporary, const std::string& key);
  void Drop(const std::string& name);

  const Fd entries_;  // <dir>/v1
  const CacheLimits limits_;
};

// Names the first key component that differs and both values, or says that none does.
std::string ExplainKey(const Json& a, const Json& b);

}  // namespace cuvil::driver
