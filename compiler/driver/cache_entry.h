// One cache entry as files: an Artifact with its manifest. Pure but for the directory it is given.
#pragma once

#include <string_view>

#include "base/status.h"
#include "compiler/driver/cache.h"

namespace cuvil::driver {

// Bytes of all files of the entry but the manifest.
int64_t ArtifactBytes(const Artifact& artifact);

// Writes and flushes all files of the entry into the empty directory `dir`.
absl::Status WriteEntry(int dir, std::string_view key, const Artifact& artifact);

// Reads the entry of `key`, checking every digest. DataLoss when anything is not as written.
// `on_program` is told program.json before the objects are read; its error ends the read.
absl::StatusOr<Artifact> ReadEntry(int dir, std::string_view key,
                                   const ArtifactCache::OnProgram& on_program = nullptr);

}  // namespace cuvil::driver
